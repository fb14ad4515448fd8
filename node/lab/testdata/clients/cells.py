"""What the Python clients share: they fill one column of the table, and print
each cell as a line of JSON as soon as it is known."""

import json
import os
import sys
import threading
import time

PROMPT = "Say hello in five words."
CAPITAL = "What is the capital of France? Answer with one word."
MESSAGES = [{"role": "user", "content": PROMPT}]
# At temperature 0 the model does not end this for thousands of tokens.
STORY = [{"role": "user", "content": "Write the numbers from 1 to 2000, one a line."}]
LONG = "word " * 6000  # tokens: more than the context of a slot
MEANWHILE = 8  # more requests than a limited key may have room for again since it was used up
WIDTH = 576  # of the model's embeddings

# The smallest picture there is.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = [{"role": "user", "content": [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}},
]}]

# Enumerations keep a small model from writing without end.
CITY = {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"], "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells the weather of a city.", "parameters": CITY}}
WEATHER = [{"role": "user", "content": "How is the weather in Rome?"}]


class Wrong(Exception):
    """A cell is not as it should be; the text says what came."""


class Answered(Wrong):
    """What should be refused was not."""


def must(holds, *got):
    if not holds:
        raise Wrong(" ".join(repr(g) for g in got))


def is_city(text):
    """The text is a document of the schema CITY."""
    document = json.loads(text)
    must(set(document) == {"city"} and document["city"] in ("Paris", "Rome"), document)


def refused(call, kind, *words, status=None, code=None):
    """The call fails with the client's own exception, which has the status, the
    code and the words."""
    try:
        answer = call()
    except kind as e:
        must(status is None or getattr(e, "status_code", None) == status, "status", type(e), e)
        must(code is None or getattr(e, "code", None) == code, "code", getattr(e, "code", None), e)
        for word in words:
            must(word in str(e), f"{word!r} is not in", str(e)[:500])
        return "refused"
    raise Answered(f"was answered: {answer!r}"[:500])


class Table:
    """The column of one client, asked for by the line that standard input begins with."""

    def __init__(self):
        asked = json.loads(sys.stdin.readline())
        self.model = asked["model"]
        self.key = asked["key"]  # may do all
        self.narrow = asked["narrow"]  # may not use the model
        self.wrong = asked["wrong"]  # unknown
        self.limited = asked["limited"]  # four requests a minute
        self.boxes = asked["boxes"]  # name to address
        self.home = asked["home"]  # the box at which the limited key is used
        self.large = asked["large"]  # characters that are more than a body may have
        self._printing = threading.Lock()
        # Some clients print on standard output themselves.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._side = None

    def tell(self, **line):
        with self._printing:
            print(json.dumps(line), file=self._out, flush=True)

    def cell(self, box, feature, fill):
        """Fills a cell: fill returns nothing where the feature works, or
        "refused"."""
        began = time.monotonic()
        try:
            outcome, detail = fill() or "ok", ""
        except BaseException as e:
            outcome, detail = "failed", f"{type(e).__name__}: {e}"[:1000]
        self.tell(box=box, feature=feature, outcome=outcome, detail=detail, seconds=time.monotonic() - began)

    def fill(self, features):
        """Fills the column with what features(address) gives for each box."""
        for box, address in self.boxes.items():
            for feature, fill in features(box, address).items():
                self.cell(box, feature, fill)
        self.tell(filled=True)
        self._side.join()

    def idle(self, box):
        """The lab looks whether the engine still works for a stream that was
        left."""
        self.tell(ask="idle", box=box)
        answer = sys.stdin.readline().strip()
        must(answer == "idle", answer)

    def at_limit(self, refusal, patient):
        """Has the limited key refused, and waits for the next success, beside the
        rest: it takes up to a minute. The lab uses the key up before. A client
        that always retries gives no refusal(), one that never does no patient()."""
        def refuse():
            for _ in range(MEANWHILE):
                try:
                    return refusal()
                except Answered:
                    pass
            raise Wrong("a key that is used up was answered")

        def patiently():
            # A wait is up to 15 s long; without one the key is used up first.
            began = time.monotonic()
            for _ in range(MEANWHILE):
                patient()
                if time.monotonic() - began > 20:
                    break

        def side():
            # Earlier in a minute, Retry-After can be longer than the 60 s up to
            # which SDKs obey it.
            while time.time() % 60 < 16:
                time.sleep(0.5)
            if refusal:
                self.cell(self.home, "429", refuse)
            if patient:
                self.cell(self.home, "retry", patient if refusal else patiently)

        self._side = threading.Thread(target=side)
        self._side.start()
