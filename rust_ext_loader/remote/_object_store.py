"""
Speak with an object store, for a limited time.

Whatever goes wrong there (no network, no such bucket, no permission, silence)
comes out as one kind of error with one line of text.

Invariant: nobody waits longer than the limit, whatever the other side does, and
nothing larger than was allowed is received. No secret of a URL gets into a text.
At its exit the interpreter waits for a request that nobody waits for any more, and
the native library is given no Python object to let go of later: a thread that
comes back into an interpreter that is going away aborts the process. Hence no
coroutines, and files for bytes.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import os
import re
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any, TypeVar

    from obstore.store import ObjectStore

    _Result = TypeVar("_Result")

#: Seconds after the limit at which a request ends that nobody waits for any more.
_GRACE = 1.0
#: Seconds that one request may take, however long the whole may.
_LONGEST_REQUEST = 60.0
#: How the stores' own tools are told that plain http will do (a store on this host, say).
_ALLOW_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")

#: The process in which the native library has started its threads: no fork of it has them.
_at_home_in: list[int] = []


class RemoteFailed(Exception):
    """
    The store could not be reached, or did not do what was asked.
    """


class OutOfTime(RemoteFailed):
    """
    It did not do it within the limit.
    """


def within(seconds: float, url: str, work: Callable[[Bucket], _Result], *, writing: bool = False) -> _Result:
    """
    What work with a place comes to that may take some seconds; raises `RemoteFailed`.
    """
    outcome: concurrent.futures.Future[_Result] = concurrent.futures.Future()
    bucket = _open(url, seconds, writing=writing)

    def run() -> None:
        try:
            outcome.set_result(work(bucket))
        # A panic of the native library is no `Exception`.
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            outcome.set_exception(error)

    # A request cannot be interrupted, but he who waits for it can go.
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
        bucket.until = 0.0
        if thread.is_alive():
            atexit.register(thread.join, _request_limit(seconds) + _GRACE)


def _request_limit(seconds: float) -> float:
    return min(seconds, _LONGEST_REQUEST) + _GRACE


def one_line(error: BaseException) -> str:
    """
    What an error says, cut to a line and without the secrets of URLs.
    """
    text = str(error).partition("\n")[0].strip() or type(error).__name__
    text = re.sub(r"//[^/@\s]*@", "//", re.sub(r"\?\S+", "?...", text))
    return text if len(text) <= 400 else f"{text[:400]}..."


@dataclass(slots=True)
class Bucket:
    """
    One place in an object store, until its time is up.
    """

    store: ObjectStore
    #: By the monotonic clock.
    until: float

    def _check(self) -> None:
        if time.monotonic() > self.until:
            raise OutOfTime("time is up")

    def names(self, prefix: str, at_most: int) -> list[str]:
        """
        Names of the objects below a prefix, some of them where there are many.
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
        Bytes of an object, `None` where there is none.
        """
        self._check()
        try:
            return self.store.head(name)["size"]
        except FileNotFoundError:
            return None

    def small(self, name: str, at_most: int) -> bytes | None:
        """
        The content of a small object, `None` where there is none.
        """
        try:
            return b"".join(self.chunks(name, at_most))
        except FileNotFoundError:
            return None

    def chunks(self, name: str, at_most: int) -> Iterator[bytes]:
        """
        The content of an object, piece by piece.
        """
        self._check()
        answer = self.store.get(name)
        if answer.meta["size"] > at_most:
            raise RemoteFailed(f"{name} is larger than it may be: {answer.meta['size']} bytes, at most {at_most}")
        received = 0
        for chunk in answer.stream():
            self._check()
            received += len(chunk)
            if received > at_most:
                raise RemoteFailed(f"{name} is larger than it says")
            yield bytes(chunk)
        if received != answer.meta["size"]:
            raise RemoteFailed(f"{name} broke off after {received} of {answer.meta['size']} bytes")

    def put(self, name: str, content: Path) -> None:
        """
        Store a file as an object: readers see all of it or what was there before.
        """
        self._check()
        self.store.put(name, content)


def _open(url: str, seconds: float, *, writing: bool) -> Bucket:
    """
    The place that a URL names; credentials come from where the store's own tools look for them.
    """
    if _at_home_in and os.getpid() not in _at_home_in:
        raise RemoteFailed("this process was forked from one that had asked already, and cannot ask again")
    from obstore.store import from_url

    _at_home_in[:] = [os.getpid()]
    options: dict[str, Any] = {"mkdir": True} if writing and url.startswith("file:") else {}
    if not url.startswith("file:"):
        limit = timedelta(seconds=_request_limit(seconds))
        # What is given here replaces what the environment says, so its one option that matters is handed on.
        plain = url.startswith("http://") or any(
            os.environ.get(name, "").lower() in ("1", "true", "yes") for name in _ALLOW_HTTP
        )
        options["client_options"] = {"timeout": limit, "connect_timeout": limit, "allow_http": plain}
        options["retry_config"] = {"max_retries": 3 if writing else 1, "retry_timeout": limit}
    try:
        return Bucket(from_url(url, **options), time.monotonic() + seconds)
    except Exception as error:
        raise RemoteFailed(one_line(error)) from error
