"""The llm package of Python, with models of its extra-openai-models.yaml."""

import base64
import gc
import os
import tempfile
from pathlib import Path

from cells import *

table = Table()
home = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(home)  # read when llm is imported


def entry(name, address, model, more=""):
    return f"""- model_id: {name}
  model_name: {model}
  api_base: {address}/v1
  api_key_name: llmgw
  supports_tools: true
  supports_schema: true
  vision: true
{more}"""


(home / "extra-openai-models.yaml").write_text("".join(
    entry(box, address, table.model) + entry(box + "-none", address, "no-such-model")
    + entry(box + "-responses", address, table.model, "  responses: true\n")
    for box, address in table.boxes.items()))

import llm
import openai


def weather(city: str) -> str:
    "Tells the weather of a city."
    return "fine"


def features(box, address):
    short = {"temperature": 0, "max_tokens": 12}

    def ask(prompt=PROMPT, model=box, key=None, **more):
        return llm.get_model(model).prompt(prompt, key=key or table.key, **short | more)

    def whole(**more):
        answer = ask(stream=False, **more)
        must(answer.text() and answer.usage().output > 1, answer.text(), answer.usage())

    def stream(**more):
        # It asks for the chunk with the usage.
        answer = ask(stream=True, **more)
        must(len(list(answer)) > 1 and answer.usage().output > 1, answer.text(), answer.usage())

    def schema():
        is_city(ask("How is the weather in Rome?", schema=CITY, max_tokens=60).text())

    def vision():
        picture = llm.Attachment(type="image/png", content=base64.b64decode(PNG))
        return refused(lambda: ask(attachments=[picture]).text(), openai.BadRequestError, "images", status=400, code="unsupported_by_model")

    def cancel():
        parts = iter(ask(STORY[0]["content"], stream=True, max_tokens=3000))
        for _ in range(5):
            next(parts)
        # It has no way to leave a stream but to forget it.
        del parts
        gc.collect()
        table.idle(box)

    return {
        "chat": whole, "stream+usage": stream,
        "tools-auto": lambda: refused(lambda: ask("How is the weather in Rome?", tools=[weather]).text(), openai.BadRequestError, "tools", status=400, code="unsupported_by_model"),
        "schema": schema, "vision": vision,
        "responses": lambda: whole(model=box + "-responses"), "responses-stream": lambda: stream(model=box + "-responses"),
        "cancel": cancel,
        "401": lambda: refused(lambda: ask(key=table.wrong).text(), openai.AuthenticationError, status=401, code="invalid_api_key"),
        "403": lambda: refused(lambda: ask(key=table.narrow).text(), openai.PermissionDeniedError, status=403, code="model_not_allowed"),
        "404": lambda: refused(lambda: ask(model=box + "-none").text(), openai.NotFoundError, table.model, status=404, code="model_not_found"),
        "too-long": lambda: refused(lambda: ask(LONG).text(), openai.BadRequestError, status=400, code="context_length_exceeded"),
    }


def limited():
    # The openai package below retries on its own, always.
    answer = llm.get_model(table.home).prompt(PROMPT, key=table.limited, max_tokens=1, stream=False)
    must(answer.text(), "no answer")


llm.get_model(table.home)  # its plugins load but once, and not by two threads at a time
table.at_limit(None, limited)
table.fill(features)
