"""What happens to payloads and results between a program and the server: compression, encryption, large ones elsewhere.

`PayloadCodec` is given to an app: `App(payloads=PayloadCodec(compress_from=4096))`.  See docs/howto/payloads.md.
"""
