"""The local model's server: llama.cpp's own, OpenAI-compatible, inside the process that asks for it."""

import importlib
import os
from pathlib import Path
from typing import Any

from baton_actors.agent.weights import INSTALL_LINE, SMOLLM2
from baton_actors.errors import ModelUnusable

#: Requests that are answered at the same time, and the tokens that each may hold, prompt and answer together.
SLOTS = 2
CONTEXT_TOKENS = 4096
#: More threads bring a small model nothing.
MOST_THREADS = 4
#: What a user must know of the small model before trusting it.
HONEST = (
    "no model is set up, so a small local one answers (SmolLM2, 135 million parameters): it is for trying things out, its answers are "
    "short and often wrong, about texts most of all; for a real one set OPENAI_API_KEY, or OPENAI_BASE_URL and BATON_MODEL"
)


def model_name(weights: Path) -> str:
    """The name of a local model, as it is shown and as it answers to."""
    return weights.stem


def introduction(name: str) -> str:
    """The one line that says which local model answers, and how to use another."""
    if name == model_name(Path(SMOLLM2.file)):
        return HONEST
    return f"no model is set up, so the local {name} answers; for another one set OPENAI_API_KEY, or OPENAI_BASE_URL and BATON_MODEL"


def threads(cores: int) -> int:
    """Threads that compute, of so many usable cores.

    They wait for each other by spinning, so one that has to share its core slows all: two threads on two busy cores generated 6
    tokens a second where one generated 70. Half of the cores stay with Ray and the workers.
    """
    return max(1, min(MOST_THREADS, cores // 2))


class LocalServer:
    """A GGUF file served on a free port of 127.0.0.1. Loading takes a second or two, in which no other Python code runs.

    Attributes:
        base_url: as the `openai` package takes it, with `/v1`.

    Raises:
        ModelUnusable: the server is not installed, or cannot load the file.
    """

    def __init__(self, weights: Path) -> None:
        try:
            xllamacpp: Any = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise ModelUnusable("the local model", f"its server is not installed ({error}); {INSTALL_LINE}") from None
        try:
            self._server = xllamacpp.Server(_parameters(xllamacpp, weights))
        except RuntimeError:
            why = "llama.cpp cannot load it: it is damaged, too large for the memory, or of a kind that xllamacpp does not know"
            raise ModelUnusable(str(weights), f"{why}; give another file, or update by 'pip install -U xllamacpp'") from None
        self.base_url = f"{self._server.listening_address}/v1"

    def close(self) -> None:
        """End the server. An answer that somebody still waits for must have come first, or the client must have hung up."""
        self._server = None


def _parameters(xllamacpp: Any, weights: Path) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {model_name(weights)}  # else its answers carry the path
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = SLOTS
    parameters.n_ctx = SLOTS * CONTEXT_TOKENS  # divided among the slots
    parameters.cpuparams.n_threads = threads(len(os.sched_getaffinity(0)))
    parameters.cpuparams.poll = 0  # idle threads sleep
    parameters.use_jinja = True
    parameters.warmup = False  # both of these take ten seconds, for nothing on a CPU
    parameters.fit_params = False
    parameters.cache_ram_mib = 0  # old prompts are not kept: up to 8 GB otherwise
    parameters.ui = False
    parameters.verbosity = -1  # its log is loud, and goes to standard error
    return parameters
