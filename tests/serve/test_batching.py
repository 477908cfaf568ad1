import asyncio
import threading

import pytest

from perron.serve.batching import Batcher, QueueFull


class Doubling:
    """Function that doubles numbers, records batches, and waits for its gate."""

    def __init__(self):
        self.batches = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, key, items):
        self.batches.append((key, items))
        assert self.gate.wait(10)
        if "stop" in items:
            raise StopIteration
        return [2 * item for item in items]

    async def wait_for_batches(self, count):
        """Wait until this number of batches have started."""
        while len(self.batches) < count:
            await asyncio.sleep(0.001)


@pytest.fixture
def doubling():
    return Doubling()


def run(doubling, scenario, wait=0.0, max_batch=8, max_queue=100, **options):
    """Run a scenario with a batcher, then close the batcher."""

    async def main():
        batcher = Batcher(doubling, max_batch, max_queue, wait, **options)
        async with asyncio.timeout(10):
            result = await scenario(batcher)
            await batcher.close()
        return result

    return asyncio.run(main())


def test_concurrent_jobs_are_batched(doubling):
    async def scenario(batcher):
        jobs = [batcher.submit("k", items) for items in ([1], [2, 3], [], [4])]
        return await asyncio.gather(*jobs)

    sizes = []
    results = run(doubling, scenario, wait=0.01, on_batch=sizes.append)
    assert results == [[2], [4, 6], [], [8]]
    assert doubling.batches == [("k", [1, 2, 3, 4])]
    assert sizes == [4]


def test_an_idle_batcher_waits_until_a_batch_is_full(doubling):
    async def scenario(batcher):
        first = batcher.submit("k", [1, 2])
        await asyncio.sleep(0.01)
        assert not doubling.batches
        second = batcher.submit("k", [3])
        return await asyncio.gather(first, second)

    assert run(doubling, scenario, wait=60.0, max_batch=3) == [[2, 4], [6]]
    assert doubling.batches == [("k", [1, 2, 3])]


def test_an_idle_batcher_waits_again_after_a_batch(doubling):
    async def scenario(batcher):
        await batcher.submit("k", [1, 2, 3])
        batcher.submit("k", [4])
        await asyncio.sleep(0.01)
        assert len(doubling.batches) == 1
        batcher.submit("k", [5, 6])

    run(doubling, scenario, wait=60.0, max_batch=3)
    assert doubling.batches == [("k", [1, 2, 3]), ("k", [4, 5, 6])]


def test_jobs_that_arrive_during_a_batch_do_not_wait_after_it(doubling):
    async def scenario(batcher):
        doubling.gate.clear()
        jobs = [batcher.submit("k", [1])]
        await doubling.wait_for_batches(1)
        batcher.wait = 60.0
        for item in (2, 3):
            jobs.append(batcher.submit("k", [item]))
            await asyncio.sleep(0.002)
        assert batcher.waiting == 2
        doubling.gate.set()
        return await asyncio.gather(*jobs)

    assert run(doubling, scenario) == [[2], [4], [6]]
    assert doubling.batches == [("k", [1]), ("k", [2, 3])]


def test_keys_are_not_mixed_and_jobs_start_in_order(doubling):
    async def scenario(batcher):
        jobs = [batcher.submit(key, [item]) for item, key in enumerate("abacb")]
        return await asyncio.gather(*jobs)

    assert run(doubling, scenario) == [[0], [2], [4], [6], [8]]
    assert doubling.batches == [("a", [0, 2]), ("b", [1, 4]), ("c", [3])]


def test_only_a_single_job_may_exceed_the_batch_size(doubling):
    async def scenario(batcher):
        lists = ([1, 2], [3, 4], [5], [6, 7, 8, 9], [10])
        return await asyncio.gather(*(batcher.submit("k", items) for items in lists))

    run(doubling, scenario, max_batch=3)
    sizes = [len(items) for _, items in doubling.batches]
    assert sizes == [2, 3, 4, 1]
    computed = [item for _, items in doubling.batches for item in items]
    assert computed == list(range(1, 11))


def test_exclusive_jobs_have_their_own_batch(doubling):
    async def scenario(batcher):
        jobs = [batcher.submit("k", [n], exclusive=n % 2 == 0) for n in range(4)]
        return await asyncio.gather(*jobs)

    assert run(doubling, scenario) == [[0], [2], [4], [6]]
    assert [items for _, items in doubling.batches] == [[0], [1, 3], [2]]


def test_canceled_jobs_are_not_computed(doubling):
    async def scenario(batcher):
        jobs = [batcher.submit("k", [n]) for n in range(4)]
        jobs[1].cancel()
        jobs[2].set_exception(TimeoutError())
        await asyncio.sleep(0)
        assert batcher.waiting == 2
        return await asyncio.gather(*jobs, return_exceptions=True)

    first, second, third, last = run(doubling, scenario, wait=0.01)
    assert (first, last) == ([0], [6])
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, TimeoutError)
    assert doubling.batches == [("k", [0, 3])]


def test_canceling_a_running_job_does_not_affect_its_batch(doubling):
    async def scenario(batcher):
        doubling.gate.clear()
        jobs = [batcher.submit("k", [n]) for n in range(3)]
        await doubling.wait_for_batches(1)
        jobs[1].cancel()
        doubling.gate.set()
        return await jobs[0], await jobs[2]

    assert run(doubling, scenario, wait=0.01) == ([0], [4])
    assert doubling.batches == [("k", [0, 1, 2])]


def test_a_full_queue_rejects_jobs_until_others_leave(doubling):
    async def scenario(batcher):
        doubling.gate.clear()
        batcher.submit("k", [0])
        await doubling.wait_for_batches(1)  # no longer in the queue
        jobs = [batcher.submit("k", [1, 2]), batcher.submit("k", [3])]
        with pytest.raises(QueueFull):
            batcher.submit("k", [4])
        assert batcher.waiting == 3
        jobs[0].cancel()
        await asyncio.sleep(0)
        last = batcher.submit("k", [5, 6])
        doubling.gate.set()
        return await last

    assert run(doubling, scenario, max_queue=3) == [10, 12]


@pytest.mark.parametrize("invalid", [None, "stop"])
def test_an_exception_fails_only_its_batch(doubling, invalid):
    async def scenario(batcher):
        jobs = [batcher.submit("k", items) for items in ([1], [invalid])]
        jobs.append(batcher.submit("other", [2]))
        results = await asyncio.gather(*jobs, return_exceptions=True)
        return [*results, await batcher.submit("k", [3])]

    first, second, *rest = run(doubling, scenario, wait=0.01)
    assert isinstance(first, TypeError | RuntimeError)
    assert type(first) is type(second)
    assert rest == [[4], [6]]


def test_two_threads_split_the_queue_and_run_in_parallel(doubling):
    async def scenario(batcher):
        doubling.gate.clear()
        jobs = [batcher.submit("k", [n]) for n in range(50)]
        await doubling.wait_for_batches(2)  # both are blocked
        assert batcher.waiting == 0
        late = [batcher.submit("k", [n]) for n in (50, 51)]
        assert batcher.waiting == 2
        doubling.gate.set()
        return await asyncio.gather(*jobs, *late)

    results = run(doubling, scenario, wait=0.01, max_batch=100, threads=2)
    assert results == [[2 * n] for n in range(52)]
    assert [len(items) for _, items in doubling.batches] == [25, 25, 2]


def test_a_small_batch_is_not_split(doubling):
    async def scenario(batcher):
        return await asyncio.gather(*(batcher.submit("k", [n]) for n in range(16)))

    run(doubling, scenario, wait=0.01, max_batch=100, threads=2)
    assert [len(items) for _, items in doubling.batches] == [16]


def test_closing_computes_the_jobs_in_the_queue(doubling):
    async def scenario(batcher):
        return [batcher.submit("k", [1]), batcher.submit("other", [2])]

    jobs = run(doubling, scenario, wait=0.01)
    assert [job.result() for job in jobs] == [[2], [4]]
    assert not [t for t in threading.enumerate() if t.name.startswith("perron-compute")]
