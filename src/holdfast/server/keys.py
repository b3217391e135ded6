"""The keys that open the server. Only their hashes are kept in memory.

The main key is given, or made once and kept in the data directory, where the command line finds
it. Further ones are listed there by name and hash, so that the list gives no key away. Whoever is
taken off the list is let in no more, without a restart.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex, token_urlsafe
from time import monotonic
from typing import TypeAlias

from holdfast.errors import ConfigError

FILE = "api_key"
LISTED = "keys"

#: Who comes with the main key.
LOCAL = "local"

#: Seconds between two looks at the list.
LOOK = 1.0

_LEAST = 16
_MOST_BYTES = 1_000_000

#: A key of fewer different signs is a row of x or of zeros.
_LEAST_SIGNS = 6

#: What stands in examples to be replaced, without the signs between words.
_PLACEHOLDERS = re.compile(
    r"changeme|changethis|replaceme|replacethis|placeholder|your(api|secret)?key|yoursecret"
    r"|yourtoken|(api)?keyhere|secrethere|tokenhere|example|notarealkey"
)
_BETWEEN = re.compile(r"[^a-z0-9]")
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._@-]{0,63})\s+([0-9A-Fa-f]{64})")

_log = logging.getLogger("holdfast.server")

#: Somebody may have put a link or a pipe there: the first is not followed, nor the second waited for.
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK


#: Says who asks, or None once the key they came with opens no more.
Welcome: TypeAlias = Callable[[], str | None]


def always() -> str:
    """For who came with what nobody can take away."""
    return ""


@dataclass(frozen=True)
class Keys:
    """`hashes` are names and the SHA-256 of their keys; `listed` has more of them."""

    hashes: tuple[tuple[str, bytes], ...] = field(repr=False)
    listed: KeyList | None = field(default=None, repr=False)

    def principal(self, token: str) -> str | None:
        """Whose key this is, or None. It takes as long for any key, right or wrong."""
        hashed = _hash(token)
        found = None
        for name, known in (*self.hashes, *(self.listed.hashes() if self.listed else ())):
            if compare_digest(hashed, known):
                found = name
        return found


class KeyList:
    """A file of names and hashes, as it is now or was a moment ago. Raises ConfigError at first."""

    def __init__(self, path: Path, now: Callable[[], float] = monotonic) -> None:
        self._path, self._now, self._looked = path, now, now()
        self._stamp = _stamp(path)
        self._hashes = tuple(_listed(path))

    def hashes(self) -> tuple[tuple[str, bytes], ...]:
        now = self._now()
        if now - self._looked >= LOOK:
            self._looked = now
            if (stamp := _stamp(self._path)) != self._stamp:
                self._stamp, self._hashes = stamp, self._read()
        return self._hashes

    def _read(self) -> tuple[tuple[str, bytes], ...]:
        try:
            return tuple(_listed(self._path))
        except ConfigError as error:
            # Whom it was to shut out is not known.
            _log.error("nobody is let in by %s until it is mended: %s", self._path.name, error)
            return ()


def load_key(data: Path, given: str) -> Keys:
    """`given` is the main key, "" if the one in the data directory is. Raises ConfigError."""
    if given:
        key = _checked(given, "HOLDFAST_API_KEY")
    else:
        path = data / FILE
        kept = _read(path)
        key = _make(path) if kept is None else _checked(kept.strip(), f"the key file {path}")
    return Keys(((LOCAL, _hash(key)),), KeyList(data / LISTED))


def _hash(key: str) -> bytes:
    # What came over the network may hold halves of characters, which are just a wrong key.
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def _checked(key: str, where: str) -> str:
    """The key, if nobody could guess it. What is said never repeats it."""
    if len(key) < _LEAST:
        raise ConfigError(
            f"{where} holds a key of {len(key)} characters; it must have at least {_LEAST}"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{where} holds blanks or signs that cannot be part of a key")
    if _PLACEHOLDERS.search(_BETWEEN.sub("", key.lower())) or len(set(key)) < _LEAST_SIGNS:
        raise ConfigError(f"{where} holds a placeholder, which anyone could guess; choose a key")
    return key


def _listed(path: Path) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate((_read(path) or "").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _LINE.fullmatch(line.strip())
        if entry is None:
            raise ConfigError(
                f"line {number} of {path} must be a name and the SHA-256 of a key in hex"
            )
        name, hashed = entry.groups()
        if name == LOCAL:
            raise ConfigError(
                f"line {number} of {path} has the name {LOCAL}, which is that of the main key"
            )
        yield name, bytes.fromhex(hashed)


def _stamp(path: Path) -> tuple[int, ...]:
    """Another once the file was changed or replaced."""
    try:
        now = path.lstat()
    except OSError:
        return ()
    return (now.st_ino, now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_mode)


# --- files -----------------------------------------------------------------------------


def _read(path: Path) -> str | None:
    """What stands in a file that is for its owner alone, or None if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | _AS_IT_IS)
    except FileNotFoundError:
        return None
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise _unfit(path, "it is a link" if link else error.strerror) from error
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _unfit(path, "it is no file")
        if mode & 0o077:
            raise _unfit(path, f"it is open to others; close it with: chmod 600 {path}")
        return os.read(handle, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(handle)


def _make(path: Path) -> str:
    """A new key under its name, whole and for good, or not at all."""
    key = f"hf_{token_urlsafe(32)}"
    draft = path.with_name(f"{path.name}.{token_hex(4)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, f"{key}\n".encode())
            os.fsync(handle)
            # Unlike a renaming, this replaces nothing.
            path.hardlink_to(draft)
        finally:
            os.close(handle)
            draft.unlink()
        _sync(path.parent)
    except OSError as error:
        raise _unfit(path, f"it cannot be made: {error.strerror}") from error
    return key


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unfit(path: Path, why: str | None) -> ConfigError:
    return ConfigError(f"the key file {path} cannot be used: {why}")
