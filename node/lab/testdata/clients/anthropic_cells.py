"""The anthropic package of Python."""

import anthropic
from cells import *

table = Table()
TOOLS = [{"name": "weather", "description": "Tells the weather of a city.", "input_schema": CITY}]


def client(address, key=None, retries=0):
    return anthropic.Anthropic(base_url=address, api_key=key or table.key, max_retries=retries, timeout=120)


def features(box, address):
    c = client(address)
    # It has no name for the temperature, at which a small model keeps to a schema.
    common = {"model": table.model, "max_tokens": 12, "messages": MESSAGES, "extra_body": {"temperature": 0}}

    def message(at=c, **more):
        return at.messages.create(**common | more)

    def whole():
        answer = message()
        must(answer.role == "assistant" and answer.content[0].text, answer)
        must(answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > 5, answer.usage)
        must(answer.usage.output_tokens > 1, answer.usage)

    def stream():
        with c.messages.stream(**common) as s:
            parts = list(s.text_stream)
            answer = s.get_final_message()
        must(len(parts) > 1 and "".join(parts) == answer.content[0].text, parts, answer)
        must(answer.stop_reason in ("end_turn", "max_tokens") and answer.usage.output_tokens > 1, answer)

    def count():
        must(c.messages.count_tokens(model=table.model, messages=MESSAGES).input_tokens > 5, "tokens")

    called = {"messages": WEATHER, "tools": TOOLS, "max_tokens": 60}

    def is_call(answer):
        call, = [b for b in answer.content if b.type == "tool_use"]
        must(call.id and call.name == "weather" and answer.stop_reason == "tool_use", answer)
        is_city(json.dumps(call.input))

    def tool_stream():
        with c.messages.stream(**common | called, tool_choice={"type": "any"}) as s:
            for _ in s:
                pass
            is_call(s.get_final_message())

    def schema():
        answer = message(messages=WEATHER, max_tokens=60, output_config={"format": {"type": "json_schema", "schema": CITY}})
        is_city(answer.content[0].text)

    def vision():
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
        return refused(
            lambda: message(messages=[{"role": "user", "content": [picture, {"type": "text", "text": "What is this?"}]}]),
            anthropic.BadRequestError, "images", status=400)

    def cancel():
        s = message(messages=STORY, max_tokens=3000, stream=True)
        for _ in range(8):
            next(s)
        s.close()
        table.idle(box)

    def models():
        must([m.id for m in c.models.list()] == [table.model], "models")

    def retrieve():
        must(c.models.retrieve(table.model).id == table.model, "model")

    return {
        "messages": whole, "messages-stream": stream, "count-tokens": count,
        "tools-auto": lambda: refused(lambda: message(**called), anthropic.BadRequestError, "tools", "invalid_request_error", status=400),
        "tool-required": lambda: is_call(message(**called, tool_choice={"type": "tool", "name": "weather"})),
        "tool-stream": tool_stream, "schema": schema, "vision": vision,
        "models": models, "model": retrieve, "cancel": cancel,
        "401": lambda: refused(lambda: message(client(address, table.wrong)), anthropic.AuthenticationError, "authentication_error", status=401),
        "403": lambda: refused(lambda: message(client(address, table.narrow)), anthropic.PermissionDeniedError, "permission_error", status=403),
        "404": lambda: refused(lambda: message(model="no-such-model"), anthropic.NotFoundError, table.model, status=404),
        "too-long": lambda: refused(lambda: message(messages=[{"role": "user", "content": LONG}]), anthropic.BadRequestError, "context", status=400),
        "413": lambda: refused(lambda: message(messages=[{"role": "user", "content": "x" * table.large}]), anthropic.RequestTooLargeError, status=413),
    }


def limited(retries=0):
    at = client(table.boxes[table.home], table.limited, retries)
    return at.messages.create(model=table.model, messages=MESSAGES, max_tokens=1)


table.at_limit(
    lambda: refused(limited, anthropic.RateLimitError, "rate_limit_error", status=429),
    lambda: must(limited(retries=2).content, "no answer"),
)
table.fill(features)
