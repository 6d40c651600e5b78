"""asyncio on both sides: a hundred coroutines in one worker, beside a plain function, and nothing blocks the loop.

python examples/async_worker.py
"""

from __future__ import annotations

import asyncio
import hashlib
import time

from switchgear import App, JobCancelled

app = App()


@app.task
async def fetch(page: int) -> str:
    """Waits, as most of a web service's work does: a hundred of these fit into one thread."""
    await asyncio.sleep(0.2)
    return f"page {page}"


@app.task
def digest(text: str) -> str:
    """Computes, and so runs in a thread of the same worker."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@app.task
async def wait_for_ever() -> None:
    """Until it is cancelled, like any coroutine."""
    await asyncio.Event().wait()


async def main() -> None:
    started = time.monotonic()
    pages = [page async for page in fetch.amap(range(50))]
    took = time.monotonic() - started
    print(f"{len(pages)} pages, {'side by side' if took < 50 * 0.2 else 'one by one'}")

    job = await digest.submit_async(pages[0])
    print(pages[0], "has the digest", await job)

    endless = await wait_for_ever.submit_async()
    try:
        await asyncio.wait_for(endless.result_async(), 0.1)
    except TimeoutError:
        await endless.cancel_async()
    try:
        await endless
    except JobCancelled:
        print("what would not end was cancelled")


if __name__ == "__main__":
    asyncio.run(main())
