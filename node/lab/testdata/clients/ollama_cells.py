"""The ollama package of Python."""

import ollama
from cells import *

table = Table()
SHORT = {"temperature": 0, "num_predict": 12}


def client(address, key=None):
    return ollama.Client(host=address, headers={"Authorization": "Bearer " + (key or table.key)}, timeout=120)


def features(box, address):
    c = client(address)

    def chat(at=c, **more):
        return at.chat(**{"model": table.model, "messages": MESSAGES, "options": SHORT} | more)

    def whole():
        answer = chat()
        must(answer.message.content and answer.done and answer.eval_count > 1 and answer.prompt_eval_count > 5, answer)

    def stream():
        parts = list(chat(stream=True))
        must(len(parts) > 2 and parts[-1].done and parts[-1].eval_count > 1, parts)
        must("".join(p.message.content or "" for p in parts), parts)

    def generate():
        answer = c.generate(model=table.model, prompt=PROMPT, options=SHORT)
        must(answer.response and answer.done, answer)
        parts = list(c.generate(model=table.model, prompt=PROMPT, options=SHORT, stream=True))
        must(len(parts) > 2 and parts[-1].done, parts)
        must("".join(p.response for p in parts) == answer.response, parts, answer)

    def schema():
        is_city(chat(messages=WEATHER, format=CITY, options=SHORT | {"num_predict": 60}).message.content)

    def embeddings():
        a, b, again = c.embed(model=table.model, input=["a cat", "a dog", "a cat"]).embeddings
        must(len(a) == WIDTH and a == again != b, len(a))

    def embedding():
        must(len(c.embeddings(model=table.model, prompt="a cat").embedding) == WIDTH, "embedding")

    def models():
        model, = c.list().models
        must(model.model == table.model and model.size > 0, model)

    def running():
        model, = c.ps().models
        must(model.model == table.model, model)

    def show():
        shown = c.show(table.model)
        must("completion" in shown.capabilities and "vision" not in shown.capabilities, shown)

    def cancel():
        s = chat(stream=True, messages=STORY, options={"num_predict": 3000, "temperature": 0})
        for _ in range(5):
            next(s)
        s.close()
        table.idle(box)

    return {
        "chat": whole, "stream": stream, "generate": generate,
        "tools-auto": lambda: refused(lambda: chat(messages=WEATHER, tools=[TOOL]), ollama.ResponseError, "tools", status=400),
        "schema": schema,
        "vision": lambda: refused(lambda: chat(messages=[MESSAGES[0] | {"images": [PNG]}]), ollama.ResponseError, "images", status=400),
        "embeddings": embeddings, "embeddings-old": embedding,
        "models": models, "running": running, "model": show, "cancel": cancel,
        "401": lambda: refused(lambda: chat(client(address, table.wrong)), ollama.ResponseError, status=401),
        "403": lambda: refused(lambda: chat(client(address, table.narrow)), ollama.ResponseError, status=403),
        "404": lambda: refused(lambda: chat(model="no-such-model"), ollama.ResponseError, table.model, status=404),
        "too-long": lambda: refused(lambda: chat(messages=[{"role": "user", "content": LONG}]), ollama.ResponseError, "context", status=400),
        "413": lambda: refused(lambda: chat(messages=[{"role": "user", "content": "x" * table.large}]), ollama.ResponseError, status=413),
    }


def limited():
    at = client(table.boxes[table.home], table.limited)
    return at.chat(model=table.model, messages=MESSAGES, options={"num_predict": 1})


# This client has no retries of its own.
table.at_limit(lambda: refused(limited, ollama.ResponseError, "try again in", status=429), None)
table.fill(features)
