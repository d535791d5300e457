"""
The program when it is stopped by a signal, and when its scheduler dies.
"""

from __future__ import annotations

import signal

import pytest
from eventually import eventually
from running import TIMEOUT, events, program


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_drains_requests_in_flight(number: int, code: int) -> None:
    """
    The stream is complete, and then the process ends.
    """
    with program(delay=0.01) as running:
        connection = running.start_generation(
            text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": 100}
        )
        answer = connection.getresponse()
        answer.read(1)
        running.process.send_signal(number)
        *_, last, end = events(answer.read().decode())

        assert end == "[DONE]"
        assert last["meta_info"]["completion_tokens"] == 100
        assert running.process.wait(TIMEOUT) == code
        connection.close()


def test_the_drain_has_a_deadline() -> None:
    """
    At the deadline the stream ends with an error, and the process exits with code 0.
    """
    with program("--drain-deadline", "0.2", delay=0.01) as running:
        connection = running.start_generation(
            text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None}
        )
        answer = connection.getresponse()
        answer.read(1)
        running.process.send_signal(signal.SIGTERM)

        assert "error" in events(answer.read().decode())[-1]
        assert running.process.wait(TIMEOUT) == 0
        connection.close()


def test_a_second_signal_ends_the_process_at_once() -> None:
    """
    Open connections are closed.
    """
    with program("--drain-deadline", "600", delay=0.01) as running:
        connection = running.start_generation(
            text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None}
        )
        connection.getresponse().read(1)
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: "shutting down" in running.log, "the log says that the server shuts down")
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(TIMEOUT) == 128 + signal.SIGTERM
        connection.close()


def test_streams_get_an_error_when_the_scheduler_dies() -> None:
    """
    The process exits with code 1.
    """
    with program(die_at_step=3) as running:
        *_, last = running.stream(text="abcdef")

        assert "error" in last
        assert running.process.wait(TIMEOUT) == 1
        assert "the script ends the scheduler at step 3" in running.log


def test_a_scheduler_that_dies_during_the_drain_ends_the_process() -> None:
    """
    The process does not wait for the deadline. The stream ends with an error, and the exit code is 1.
    """
    with program("--drain-deadline", "600", die_at_step=500, delay=0.01) as running:
        connection = running.start_generation(
            text="x", stream=True, sampling_params={"ignore_eos": True, "max_new_tokens": None}
        )
        answer = connection.getresponse()
        answer.read(1)
        running.process.send_signal(signal.SIGTERM)

        assert "error" in events(answer.read().decode())[-1]
        assert running.process.wait(TIMEOUT) == 1
        # The signal came before the scheduler died: the 500 steps take five seconds.
        assert running.log.index("shutting down; 1 requests in flight") < running.log.index(
            "the script ends the scheduler at step 500"
        )
        connection.close()
