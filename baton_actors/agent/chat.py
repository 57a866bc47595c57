"""Chat Completions over HTTP through the `openai` client, whose own retries are off: the loop retries, and nothing else does.

Importing this loads `openai`, which takes a second or two.
"""

import asyncio
import json
from typing import Any

import openai

from baton_actors.agent.access import OPENAI_URL
from baton_actors.agent.answers import Pieces, error_of, reply_of
from baton_actors.agent.forbidding import check_address
from baton_actors.agent.jsontext import parsed
from baton_actors.agent.model import ModelError, Reply, Request
from baton_actors.errors import ModelUnusable

#: Seconds to wait for the list of models, at submission.
LISTING_SECONDS = 15.0
#: Seconds to wait for a connection; the rest of a call's time is the model's.
CONNECT_SECONDS = 10.0
#: The client wants a key even for servers that ask for none.
NO_KEY = "none"


class ChatModel:
    """A server of the Chat Completions protocol.

    Args:
        base_url: up to and with `/v1`. key: None for servers that ask for none. timeout: seconds of one call.

    Raises:
        ModelUnusable: calls to that address are forbidden here.
    """

    def __init__(self, base_url: str, key: str | None, *, timeout: float) -> None:
        check_address(base_url)
        self.base_url = base_url
        self._timeout = timeout
        limit = openai.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout))
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key=key or NO_KEY, max_retries=0, timeout=limit)
        self._adapted: dict[str, _Adapted] = {}

    async def answer(self, request: Request) -> Reply:
        """See `Model.answer`. A parameter that the model refuses is left out, or renamed, from then on."""
        adapted = self._adapted.setdefault(request.model, _Adapted())
        while True:
            try:
                async with asyncio.timeout(self._timeout):  # the client's own is for each piece: a server may send signs of life for ever
                    body = await self._body(request, adapted)
                return reply_of(body, tools=bool(request.tools), schema=request.schema is not None)
            except openai.APIStatusError as error:
                told = _told(error)
                if not adapted.learn(told):
                    raise error_of(
                        error.status_code, told, error.response.headers, tools=bool(request.tools), schema=request.schema is not None
                    ) from None
            except (openai.APITimeoutError, TimeoutError):
                raise ModelError(f"the model at {self.base_url} did not answer in time", "retry") from None
            except openai.APIConnectionError as error:
                cause = str(error.__cause__ or error).strip() or type(error).__name__
                raise ModelError(f"cannot reach the model at {self.base_url}: {cause}", "retry") from None
            except openai.APIError as error:  # told in the middle of a stream
                raise error_of(None, {"error": error.body or {"message": error.message}}, {}) from None
            except ModelError:
                raise
            except Exception as error:  # what a server sends may be anything, and the client does not expect all of it
                raise ModelError(
                    f"the server at {self.base_url} sent what cannot be read: {type(error).__name__}: {error}", "retry"
                ) from None

    async def _body(self, request: Request, adapted: "_Adapted") -> Any:
        streamed = request.on_text is not None
        fields = adapted.fields(request, streamed)
        raw = await self._client.chat.completions.with_raw_response.create(**fields, extra_body=dict(request.extra) or None)
        if not streamed or "event-stream" not in raw.headers.get("content-type", ""):
            await raw.http_response.aread()
            return _json(raw.http_response.text)
        pieces = Pieces()
        async for chunk in raw.parse():
            text = pieces.add(chunk.to_dict(warnings=False))
            if text and request.on_text is not None:
                request.on_text(text)
        return pieces.body()


class _Adapted:
    """What one model has taught us about its parameters."""

    def __init__(self) -> None:
        self._max_tokens = "max_tokens"
        self._left_out: set[str] = set()

    def fields(self, request: Request, streamed: bool) -> dict[str, Any]:
        """The fields of a request as this model takes them."""
        fields: dict[str, Any] = {"model": request.model, "messages": list(request.messages)}
        if request.tools:
            fields["tools"] = list(request.tools)
        if request.schema is not None:
            fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": request.schema}}
        if request.max_tokens is not None:
            fields[self._max_tokens] = request.max_tokens
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if streamed:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in fields.items() if name not in self._left_out}

    def learn(self, told: Any) -> bool:
        """Whether an error is about a parameter that can be renamed or left out; if so, that is done from now on."""
        words = json.dumps(told).lower() if not isinstance(told, str) else told.lower()
        if "max_tokens" in words and "max_completion_tokens" in words and self._max_tokens == "max_tokens":
            self._max_tokens = "max_completion_tokens"
            return True
        for name in ("temperature", "stream_options", "max_tokens", "max_completion_tokens"):
            if name in words and name not in self._left_out and _is_unwanted(words):
                self._left_out.add(name)
                return True
        if "stream" in words and "stream" not in self._left_out and (_is_unwanted(words) or "must be verified" in words):
            self._left_out |= {"stream", "stream_options"}
            return True
        return False


def _is_unwanted(words: str) -> bool:
    signs = ("unsupported", "not support", "unrecognized", "unknown", "not permitted", "extra inputs", "not allowed")
    return any(each in words for each in signs)


def _told(error: openai.APIStatusError) -> Any:
    """The body of an error answer: JSON, or its text."""
    try:
        return error.response.json()
    except ValueError:
        return _first_line_of(error.response.text)


def _first_line_of(text: str) -> str:
    """Pages of proxies are long; their title says it."""
    lower = text.lower()
    if "<title>" in lower:
        start = lower.index("<title>") + len("<title>")
        return f"an HTML page, {text[start : start + 100].split('<')[0].strip()!r}"
    return text[:400]


def _json(text: str) -> Any:
    try:
        return parsed(text)
    except ValueError:
        page = text.lstrip()[:1] == "<"
        kind = "an HTML page" if page else "no JSON"
        raise ModelError(
            f"the server's answer is {kind} ({_first_line_of(text)[:120]!r}); is OPENAI_BASE_URL right (it mostly ends in /v1)?",
            "final" if page else "retry",
        ) from None


def listed_models(base_url: str, key: str | None) -> list[str] | None:
    """The names of a server's models; None if it does not list them.

    Raises:
        ModelUnusable: nothing answers there in time, or it refuses the key.
    """
    client = openai.OpenAI(base_url=base_url, api_key=key or NO_KEY, max_retries=1, timeout=LISTING_SECONDS)
    try:
        body = _json(client.models.with_raw_response.list().http_response.text)
    except openai.AuthenticationError as error:
        given = "refuses OPENAI_API_KEY" if key else "asks for a key; set OPENAI_API_KEY"
        raise ModelUnusable(
            base_url, f"{given} ({error_of(401, _told(error), {}).why.partition(': ')[2].partition('; check')[0]})"
        ) from None
    except openai.PermissionDeniedError as error:
        raise ModelUnusable(base_url, error_of(403, _told(error), {}).why) from None
    except openai.APIStatusError:
        return None  # it may have models all the same: a call will tell
    except openai.APIConnectionError as error:
        cause = str(error.__cause__ or error).strip() or type(error).__name__
        remedy = (
            "check the network; OPENAI_BASE_URL names a server of your own"
            if base_url == OPENAI_URL
            else "is the server running? check OPENAI_BASE_URL"
        )
        raise ModelUnusable(base_url, f"no model answers there ({cause}); {remedy}") from None
    except ModelError as error:
        raise ModelUnusable(base_url, error.why) from None
    except Exception as error:  # addresses and answers may be odd in ways that the client does not expect
        raise ModelUnusable(base_url, f"cannot be asked for its models ({type(error).__name__}: {error}); check OPENAI_BASE_URL") from None
    finally:
        client.close()
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return None
    return [each["id"] for each in data if isinstance(each, dict) and isinstance(each.get("id"), str)]
