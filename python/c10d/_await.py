# SPDX-License-Identifier: BSD-3-Clause
"""What `await work` does."""
import asyncio


async def wait(work):
    """Returns what a recv got, or None. The event loop goes on meanwhile."""
    if not work.done():
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def finish():
            if not future.done():  # it may be cancelled
                future.set_result(None)

        def from_library(_):  # in a thread of the library
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:  # the loop was closed: nobody waits any more
                pass

        work.on_done(from_library)
        await future
    work.wait()
    return work.received
