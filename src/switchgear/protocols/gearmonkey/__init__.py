"""The GearMonkey protocol over RESP: docs/protocols/gearmonkey.md."""
