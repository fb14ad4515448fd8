"""The langchain-openai package of Python."""

import openai
from cells import *
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

table = Table()


def features(box, address):
    base = {"base_url": address + "/v1", "max_retries": 0, "timeout": 120}
    common = base | {"model": table.model, "api_key": table.key, "temperature": 0, "max_tokens": 12}

    def model(**more):
        return ChatOpenAI(**common | more)

    def whole(**more):
        answer = model(**more).invoke(MESSAGES)
        must(answer.text and answer.usage_metadata["output_tokens"] > 1, answer)

    def stream(**more):
        parts = list(model(**more).stream(MESSAGES))
        must(len([p for p in parts if p.text]) > 1, parts)
        return [p.usage_metadata for p in parts if p.usage_metadata]

    def no_usage():
        usages = stream(stream_usage=False)
        must(not usages, usages)

    def usage():
        usages = stream(stream_usage=True)
        must(len(usages) == 1 and usages[0]["output_tokens"] > 1, usages)

    def response_stream():
        must(stream(use_responses_api=True), "no usage came")

    def is_call(answer):
        call, = answer.tool_calls
        must(call["name"] == "weather" and call["id"], call)
        is_city(json.dumps(call["args"]))

    def tool_stream():
        answer = None
        for part in model(max_tokens=60).bind_tools([TOOL], tool_choice="required").stream(WEATHER):
            answer = part if answer is None else answer + part
        is_call(answer)

    def schema():
        titled = CITY | {"title": "city"}
        answer = model(max_tokens=60).with_structured_output(titled, method="json_schema").invoke(WEATHER)
        is_city(json.dumps(answer))

    def embeddings():
        # Else it would count tokens with tables that it has to download.
        e = OpenAIEmbeddings(**base, model=table.model, api_key=table.key, check_embedding_ctx_length=False)
        a, b = e.embed_documents(["a cat", "a dog"])
        must(len(a) == WIDTH and a != b, len(a))
        must(len(e.embed_query("a cat")) == WIDTH, "query")

    def cancel():
        parts = model(max_tokens=3000).stream(STORY)
        for _ in range(5):
            next(parts)
        parts.close()
        table.idle(box)

    def fails(kind, *words, messages=MESSAGES, status, code, **more):
        return refused(lambda: model(**more).invoke(messages), kind, *words, status=status, code=code)

    return {
        "chat": whole, "stream": no_usage, "stream+usage": usage,
        "tools-auto": lambda: refused(lambda: model().bind_tools([TOOL]).invoke(WEATHER), openai.BadRequestError, "tools", status=400, code="unsupported_by_model"),
        "tool-required": lambda: is_call(model(max_tokens=60).bind_tools([TOOL], tool_choice="weather").invoke(WEATHER)),
        "tool-stream": tool_stream, "schema": schema,
        "vision": lambda: fails(openai.BadRequestError, "images", messages=PICTURE, status=400, code="unsupported_by_model"),
        "embeddings": embeddings,
        "responses": lambda: whole(use_responses_api=True), "responses-stream": response_stream,
        "cancel": cancel,
        "401": lambda: fails(openai.AuthenticationError, api_key=table.wrong, status=401, code="invalid_api_key"),
        "403": lambda: fails(openai.PermissionDeniedError, api_key=table.narrow, status=403, code="model_not_allowed"),
        "404": lambda: fails(openai.NotFoundError, table.model, model="no-such-model", status=404, code="model_not_found"),
        "too-long": lambda: fails(openai.BadRequestError, messages=[{"role": "user", "content": LONG}], status=400, code="context_length_exceeded"),
    }


def limited(retries=0):
    at = ChatOpenAI(
        base_url=table.boxes[table.home] + "/v1", api_key=table.limited, model=table.model, max_tokens=1, max_retries=retries)
    must(at.invoke(MESSAGES).usage_metadata, "no answer")


table.at_limit(
    lambda: refused(limited, openai.RateLimitError, "try again in", status=429, code="rate_limit_exceeded"),
    lambda: limited(retries=2),
)
table.fill(features)
