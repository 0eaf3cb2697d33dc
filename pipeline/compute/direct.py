"""The short way to a worker, for small questions that are asked again and again: no task, no queue, no batches.

A task goes to the scheduler, waits for its batch of messages, and its result is fetched when its end was told: some 20
milliseconds where nothing is computed. Here a message is handed through, in two or three. It may fail in any way:
whoever asks has a task for that.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Callable
from typing import Any

__all__ = ["asked"]

LOOK_SECONDS = 1.0  # how often it is asked whether the worker is still there
LONGEST_SECONDS = 60.0  # with no answer for this long it is asked in another way


def asked(client: Any, task: Callable[[Any], Any], item: Any, where: str) -> Any:
    """What `task(item)` returns on the worker at `where`; None where that one does not answer."""
    with contextlib.suppress(Exception):  # of whatever the network and the worker have to offer
        question = client.run(_on_a_thread, task, item, workers=[where], asynchronous=True)
        answer = asyncio.run_coroutine_threadsafe(question, client.loop.asyncio_loop)
        for _ in range(int(LONGEST_SECONDS / LOOK_SECONDS)):
            with contextlib.suppress(concurrent.futures.TimeoutError):
                return answer.result(LOOK_SECONDS)[where]
            if where not in client.nthreads():
                break
        answer.cancel()
    return None


async def _on_a_thread(task: Callable[[Any], Any], item: Any, dask_worker: Any = None) -> Any:
    """Beside the event loop of a worker, which has others to listen to; Dask gives `dask_worker`."""
    return await asyncio.get_running_loop().run_in_executor(_thread(dask_worker.address), task, item)


@functools.cache
def _thread(of_worker: str) -> concurrent.futures.Executor:
    """One for each worker, of which a process may have several."""
    return concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="asked")
