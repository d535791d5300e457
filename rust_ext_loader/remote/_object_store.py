"""
Access an object store with a time limit.

Every failure (no network, no such bucket, no permission, no answer) becomes one
kind of exception with one line of text.

Invariant: no caller waits longer than its limit or receives more bytes than
allowed. No text contains a secret from a URL.

At exit, the interpreter waits for abandoned requests to end: a native thread that
enters an interpreter during shutdown aborts the process. For the same reason the
native library must hold no Python object that it would release later. So no
coroutines are used, and data is passed in files.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import os
import re
import threading
import time
from datetime import timedelta

from .._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any, TypeVar

    from obstore.store import ObjectStore

    _Result = TypeVar("_Result")

#: An abandoned request ends at most this many seconds after the limit.
_GRACE = 1.0
#: Seconds that one request may take, even if the whole operation may take longer.
_LONGEST_REQUEST = 60.0
#: Variables by which the stores' own tools allow plain http, for example for a store on this host.
_ALLOW_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")

#: The process in which the native library started its threads; a forked child does not have them.
_started_in: list[int] = []


class RemoteFailed(Exception):
    """
    The store could not be reached, or a request failed.
    """


class OutOfTime(RemoteFailed):
    """
    A request did not finish within the limit.
    """


def run_with_limit(seconds: float, url: str, work: Callable[[Bucket], _Result], *, writing: bool = False) -> _Result:
    """
    The result of *work* with an object store, within a time limit; raises `RemoteFailed`.
    """
    outcome: concurrent.futures.Future[_Result] = concurrent.futures.Future()
    bucket = _open(url, seconds, writing=writing)

    def run() -> None:
        try:
            outcome.set_result(work(bucket))
        # A panic of the native library is not an `Exception`.
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            outcome.set_exception(error)

    # A request cannot be interrupted, so it runs in a thread that can be abandoned.
    thread = threading.Thread(target=run, name="rust-ext-remote", daemon=True)
    try:
        thread.start()
        return outcome.result(seconds)
    except RemoteFailed:
        raise
    except concurrent.futures.TimeoutError as error:
        raise OutOfTime(f"no answer within {seconds:g} s") from error
    except Exception as error:
        raise RemoteFailed(one_line(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RemoteFailed(one_line(error)) from error
    finally:
        bucket.deadline = 0.0
        if thread.is_alive():
            atexit.register(thread.join, _request_limit(seconds) + _GRACE)


def _request_limit(seconds: float) -> float:
    return min(seconds, _LONGEST_REQUEST) + _GRACE


def one_line(error: BaseException) -> str:
    """
    The first line of an error, without secrets of URLs.
    """
    text = str(error).partition("\n")[0].strip() or type(error).__name__
    text = re.sub(r"//[^/@\s]*@", "//", re.sub(r"\?\S+", "?...", text))
    return text if len(text) <= 400 else f"{text[:400]}..."


@dataclass(slots=True)
class Bucket:
    """
    A prefix in an object store, usable until a deadline.
    """

    store: ObjectStore
    #: By the monotonic clock; 0 after the caller has stopped waiting.
    deadline: float

    def _check(self) -> None:
        if time.monotonic() > self.deadline:
            raise OutOfTime("time is up")

    def names(self, prefix: str, at_most: int) -> list[str]:
        """
        Names of the first *at_most* objects below a prefix.
        """
        self._check()
        found: list[str] = []
        try:
            for chunk in self.store.list(prefix, chunk_size=at_most):
                found += [item["path"] for item in chunk]
                if len(found) >= at_most:
                    break
                self._check()
        except FileNotFoundError:
            return []
        return found[:at_most]

    def size(self, name: str) -> int | None:
        """
        Size of an object in bytes; `None` if it does not exist.
        """
        self._check()
        try:
            return self.store.head(name)["size"]
        except FileNotFoundError:
            return None

    def read_small(self, name: str, at_most: int) -> bytes | None:
        """
        The content of a small object; `None` if it does not exist.
        """
        try:
            return b"".join(self.chunks(name, at_most))
        except FileNotFoundError:
            return None

    def chunks(self, name: str, at_most: int) -> Iterator[bytes]:
        """
        The content of an object, in chunks.
        """
        self._check()
        answer = self.store.get(name)
        if answer.meta["size"] > at_most:
            raise RemoteFailed(f"{name} is too large: {answer.meta['size']} bytes, at most {at_most} are accepted")
        received = 0
        for chunk in answer.stream():
            self._check()
            received += len(chunk)
            if received > at_most:
                raise RemoteFailed(f"{name} is larger than announced")
            yield bytes(chunk)
        if received != answer.meta["size"]:
            raise RemoteFailed(f"{name} ended after {received} of {answer.meta['size']} bytes")

    def put(self, name: str, content: Path) -> None:
        """
        Store a file as an object; readers see the whole new object or the old one.
        """
        self._check()
        self.store.put(name, content)


def _open(url: str, seconds: float, *, writing: bool) -> Bucket:
    """
    The object store of a URL; credentials are found as by the store's own tools.
    """
    if _started_in and os.getpid() not in _started_in:
        raise RemoteFailed("this process was forked from one that used the remote, so it cannot use the remote")
    from obstore.store import from_url

    _started_in[:] = [os.getpid()]
    options: dict[str, Any] = {"mkdir": True} if writing and url.startswith("file:") else {}
    if not url.startswith("file:"):
        limit = timedelta(seconds=_request_limit(seconds))
        # These options replace those from the environment, so the permission for plain http is copied from there.
        plain = url.startswith("http://") or any(
            os.environ.get(name, "").lower() in ("1", "true", "yes") for name in _ALLOW_HTTP
        )
        options["client_options"] = {"timeout": limit, "connect_timeout": limit, "allow_http": plain}
        options["retry_config"] = {"max_retries": 3 if writing else 1, "retry_timeout": limit}
    try:
        return Bucket(from_url(url, **options), time.monotonic() + seconds)
    except Exception as error:
        raise RemoteFailed(one_line(error)) from error
