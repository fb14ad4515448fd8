"""The SDK of litellm-core, which brings the openai package of the major version
before the newest."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the Internet when imported

import litellm
from cells import *

table = Table()


def features(box, address):
    base = {"api_base": address + "/v1", "api_key": table.key, "max_retries": 0}
    common = base | {"model": "openai/" + table.model, "temperature": 0, "max_tokens": 12}

    def chat(**more):
        return litellm.completion(**common | {"messages": MESSAGES} | more)

    def whole():
        answer = chat()
        must(answer.choices[0].message.content and answer.usage.completion_tokens > 1, answer)

    def stream(**more):
        parts = list(chat(stream=True, **more))
        must(len([p for p in parts if p.choices and p.choices[0].delta.content]) > 1, parts)
        return [p.usage for p in parts if getattr(p, "usage", None)]

    def no_usage():
        usages = stream()
        must(not usages, usages)

    def usage():
        usages = stream(stream_options={"include_usage": True})
        must(usages and usages[-1].completion_tokens > 1, usages)

    called = {"messages": WEATHER, "tools": [TOOL], "max_tokens": 60}

    def is_call(answer):
        call, = answer.choices[0].message.tool_calls
        must(call.function.name == "weather" and call.id and answer.choices[0].finish_reason == "tool_calls", answer)
        is_city(call.function.arguments)

    def tool_stream():
        parts = list(chat(**called, tool_choice="required", stream=True))
        is_call(litellm.stream_chunk_builder(parts))

    def schema():
        is_city(chat(messages=WEATHER, max_tokens=60, response_format={
            "type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}).choices[0].message.content)

    def embeddings():
        a, b = litellm.embedding(**base, model="openai/" + table.model, input=["a cat", "a dog"]).data
        must(len(a["embedding"]) == WIDTH and a["embedding"] != b["embedding"], len(a["embedding"]))

    def respond(**more):
        return litellm.responses(**base, model="openai/" + table.model, input=PROMPT, max_output_tokens=12, **more)

    def response():
        answer = respond()
        must(answer.output[0].content[0].text and answer.usage.output_tokens > 1, answer)

    def response_stream():
        kinds = [str(getattr(e.type, "value", e.type)) for e in respond(stream=True)]
        must("response.output_text.delta" in kinds and kinds[-1] in ("response.completed", "response.incomplete"), kinds)

    messages = {"api_base": address, "model": "anthropic/" + table.model}

    def message():
        answer = chat(**messages)
        must(answer.choices[0].message.content and answer.usage.completion_tokens > 1, answer)

    def message_stream():
        parts = list(chat(**messages, stream=True))
        must(len([p for p in parts if p.choices[0].delta.content]) > 1, parts)

    def cancel():
        s = chat(stream=True, messages=STORY, max_tokens=3000)
        for _ in range(5):
            next(s)
        s.completion_stream.close()
        table.idle(box)

    def fails(kind, *words, status, **more):
        return refused(lambda: chat(**more), kind, *words, status=status)

    return {
        "chat": whole, "stream": no_usage, "stream+usage": usage,
        "tools-auto": lambda: fails(litellm.BadRequestError, "tools", status=400, **called),
        "tool-required": lambda: is_call(chat(**called, tool_choice="required")),
        "tool-stream": tool_stream, "schema": schema,
        "vision": lambda: fails(litellm.BadRequestError, "images", messages=PICTURE, status=400),
        "embeddings": embeddings, "responses": response, "responses-stream": response_stream,
        "messages": message, "messages-stream": message_stream, "cancel": cancel,
        "401": lambda: fails(litellm.AuthenticationError, api_key=table.wrong, status=401),
        "403": lambda: fails(litellm.APIError, "may not use", api_key=table.narrow, status=403),
        "404": lambda: fails(litellm.NotFoundError, table.model, model="openai/no-such-model", status=404),
        "too-long": lambda: fails(litellm.ContextWindowExceededError, messages=[{"role": "user", "content": LONG}], status=400),
    }


def limited(retries=0):
    return litellm.completion(
        api_base=table.boxes[table.home] + "/v1", api_key=table.limited, max_retries=retries,
        model="openai/" + table.model, messages=MESSAGES, max_tokens=1)


table.at_limit(
    lambda: refused(limited, litellm.RateLimitError, "try again in", status=429),
    lambda: must(limited(retries=2).choices, "no answer"),
)
table.fill(features)
