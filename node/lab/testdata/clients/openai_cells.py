"""The openai package of Python."""

import openai
from cells import *

table = Table()


def client(address, key=None, retries=0):
    return openai.OpenAI(base_url=address + "/v1", api_key=key or table.key, max_retries=retries, timeout=120)


def features(box, address):
    c = client(address)
    common = {"model": table.model, "temperature": 0, "max_tokens": 12}

    def chat(at=c, **more):
        return at.chat.completions.create(**{**common, "messages": MESSAGES, **more})

    def whole():
        answer = chat()
        must(answer.choices[0].message.content, answer)
        must(answer.usage.completion_tokens > 1, answer.usage)

    def stream(**more):
        parts, usages, finish = [], [], None
        for chunk in chat(stream=True, **more):
            usages += [chunk.usage] if chunk.usage else []
            for choice in chunk.choices:
                parts.append(choice.delta.content or "")
                finish = choice.finish_reason or finish
        must(len([p for p in parts if p]) > 1 and finish, parts, finish)
        return usages

    def no_usage():
        usages = stream()
        must(not usages, usages)

    def usage():
        usages = stream(stream_options={"include_usage": True})
        must(len(usages) == 1 and usages[0].completion_tokens > 1, usages)

    called = {"messages": WEATHER, "tools": [TOOL], "max_tokens": 60}

    def tool():
        answer = chat(**called, tool_choice="required").choices[0]
        call, = answer.message.tool_calls
        must(call.type == "function" and call.id and call.function.name == "weather", call)
        must(answer.finish_reason == "tool_calls", answer)
        is_city(call.function.arguments)

    def tool_stream():
        with c.chat.completions.stream(**common | called, tool_choice="required") as s:
            for _ in s:
                pass
            answer = s.get_final_completion().choices[0]
        call, = answer.message.tool_calls
        must(call.id and call.function.name == "weather" and answer.finish_reason == "tool_calls", answer)
        is_city(call.function.arguments)

    def schema():
        answer = chat(messages=WEATHER, max_tokens=60, response_format={
            "type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}})
        is_city(answer.choices[0].message.content)

    def embeddings(**more):
        # By itself this client asks for base64.
        a, b, again = c.embeddings.create(model=table.model, input=["a cat", "a dog", "a cat"], **more).data
        must(len(a.embedding) == WIDTH and isinstance(a.embedding[0], float), a)
        must(a.embedding == again.embedding != b.embedding, a, b)

    def respond(**more):
        return c.responses.create(**{"model": table.model, "input": PROMPT, "max_output_tokens": 12, "temperature": 0} | more)

    def response():
        answer = respond()
        must(answer.output_text and answer.usage.output_tokens > 1, answer)

    def response_stream():
        text, ends = "", []
        for event in respond(stream=True):
            if event.type == "response.output_text.delta":
                text += event.delta
            ends.append(event.type)
        must(text and ends[-1] in ("response.completed", "response.incomplete"), text, ends)

    def response_helper():
        # It wants an answer that ends by itself.
        with c.responses.stream(model=table.model, input=CAPITAL, temperature=0) as s:
            for _ in s:
                pass
            answer = s.get_final_response()
        must(answer.output_text, answer)

    def response_stored():
        first = respond()
        other, = [client(at) for name, at in table.boxes.items() if name != box] or [c]
        must(other.responses.retrieve(first.id).output_text == first.output_text, first)
        second = other.responses.create(
            model=table.model, input="Say it again.", previous_response_id=first.id, max_output_tokens=12)
        must(second.output_text and second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, first, second)
        other.responses.delete(first.id)
        return refused(lambda: c.responses.retrieve(first.id), openai.NotFoundError, status=404, code="response_not_found") and None

    def response_schema():
        answer = respond(input=WEATHER, max_output_tokens=60, text={
            "format": {"type": "json_schema", "name": "city", "strict": True, "schema": CITY}})
        is_city(answer.output_text)

    def cancel():
        s = chat(stream=True, messages=STORY, max_tokens=3000)
        for _ in range(5):
            next(s)
        s.close()
        table.idle(box)

    def models():
        must([m.id for m in c.models.list()] == [table.model], "models")

    def retrieve():
        must(c.models.retrieve(table.model).id == table.model, "model")

    return {
        "chat": whole, "stream": no_usage, "stream+usage": usage,
        "tools-auto": lambda: refused(lambda: chat(**called), openai.BadRequestError, "tools", status=400, code="unsupported_by_model"),
        "tool-required": tool, "tool-stream": tool_stream, "schema": schema,
        "vision": lambda: refused(lambda: chat(messages=PICTURE), openai.BadRequestError, "images", status=400, code="unsupported_by_model"),
        "embeddings": embeddings, "embeddings-float": lambda: embeddings(encoding_format="float"),
        "responses": response, "responses-stream": response_stream, "responses-helper": response_helper, "responses-schema": response_schema, "responses-stored": response_stored,
        "models": models, "model": retrieve, "cancel": cancel,
        "401": lambda: refused(lambda: chat(client(address, table.wrong)), openai.AuthenticationError, status=401, code="invalid_api_key"),
        "403": lambda: refused(lambda: chat(client(address, table.narrow)), openai.PermissionDeniedError, status=403, code="model_not_allowed"),
        "404": lambda: refused(lambda: chat(model="no-such-model"), openai.NotFoundError, table.model, status=404, code="model_not_found"),
        "too-long": lambda: refused(lambda: chat(messages=[{"role": "user", "content": LONG}]), openai.BadRequestError, status=400, code="context_length_exceeded"),
        "413": lambda: refused(lambda: chat(messages=[{"role": "user", "content": "x" * table.large}]), openai.APIStatusError, status=413, code="request_too_large"),
    }


def limited(retries=0):
    at = client(table.boxes[table.home], table.limited, retries)
    return at.chat.completions.create(model=table.model, messages=MESSAGES, max_tokens=1)


table.at_limit(
    lambda: refused(limited, openai.RateLimitError, "try again in", status=429, code="rate_limit_exceeded"),
    lambda: must(limited(retries=2).choices, "no answer"),
)
table.fill(features)
