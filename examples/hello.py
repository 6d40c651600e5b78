from switchgear import App

app = App()


@app.task
def greet(name: str) -> str:
    return f"Hello, {name}!"


print(greet.submit("world").result())
