import asyncio
import threading

import pytest

from perron.serve.batching import Batcher, QueueFull


class Doubling:
    """Doubles numbers, remembers its batches, and waits while the gate is shut."""

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

    async def begun(self, count):
        """Wait until so many batches have begun."""
        while len(self.batches) < count:
            await asyncio.sleep(0.001)


@pytest.fixture
def doubling():
    return Doubling()


def play(doubling, scene, wait=0.0, max_batch=8, max_queue=100, **options):
    """Run a scene with a batcher, and close it."""

    async def whole():
        batcher = Batcher(doubling, max_batch, max_queue, wait, **options)
        async with asyncio.timeout(10):
            result = await scene(batcher)
            await batcher.close()
        return result

    return asyncio.run(whole())


def test_what_arrives_together_is_computed_together_and_goes_to_who_asked(doubling):
    async def scene(batcher):
        jobs = [batcher.submit("k", items) for items in ([1], [2, 3], [], [4])]
        return await asyncio.gather(*jobs)

    sizes = []
    results = play(doubling, scene, wait=0.01, on_batch=sizes.append)
    assert results == [[2], [4, 6], [], [8]]
    assert doubling.batches == [("k", [1, 2, 3, 4])]
    assert sizes == [4]


def test_an_idle_one_waits_until_a_batch_is_full(doubling):
    async def scene(batcher):
        first = batcher.submit("k", [1, 2])
        await asyncio.sleep(0.01)
        assert not doubling.batches
        second = batcher.submit("k", [3])
        return await asyncio.gather(first, second)

    assert play(doubling, scene, wait=60.0, max_batch=3) == [[2, 4], [6]]
    assert doubling.batches == [("k", [1, 2, 3])]


def test_it_waits_anew_when_it_was_idle(doubling):
    async def scene(batcher):
        await batcher.submit("k", [1, 2, 3])
        batcher.submit("k", [4])
        await asyncio.sleep(0.01)
        assert len(doubling.batches) == 1
        batcher.submit("k", [5, 6])

    play(doubling, scene, wait=60.0, max_batch=3)
    assert doubling.batches == [("k", [1, 2, 3]), ("k", [4, 5, 6])]


def test_what_arrives_while_it_computes_is_the_next_batch_without_a_wait(doubling):
    async def scene(batcher):
        doubling.gate.clear()
        jobs = [batcher.submit("k", [1])]
        await doubling.begun(1)
        batcher.wait = 60.0
        for item in (2, 3):
            jobs.append(batcher.submit("k", [item]))
            await asyncio.sleep(0.002)
        assert batcher.waiting == 2
        doubling.gate.set()
        return await asyncio.gather(*jobs)

    assert play(doubling, scene) == [[2], [4], [6]]
    assert doubling.batches == [("k", [1]), ("k", [2, 3])]


def test_keys_are_kept_apart_first_come_first_served(doubling):
    async def scene(batcher):
        keys = "abacb"
        jobs = [batcher.submit(key, [place]) for place, key in enumerate(keys)]
        return await asyncio.gather(*jobs)

    assert play(doubling, scene) == [[0], [2], [4], [6], [8]]
    assert doubling.batches == [("a", [0, 2]), ("b", [1, 4]), ("c", [3])]


def test_a_batch_has_no_more_than_it_may_unless_one_caller_has(doubling):
    async def scene(batcher):
        lists = ([1, 2], [3, 4], [5], [6, 7, 8, 9], [10])
        return await asyncio.gather(*(batcher.submit("k", items) for items in lists))

    play(doubling, scene, max_batch=3)
    sizes = [len(items) for _, items in doubling.batches]
    assert sizes == [2, 3, 4, 1]
    computed = [item for _, items in doubling.batches for item in items]
    assert computed == list(range(1, 11))


def test_what_must_be_alone_is(doubling):
    async def scene(batcher):
        alone = [True, False, True, False]
        jobs = [batcher.submit("k", [n], alone=a) for n, a in enumerate(alone)]
        return await asyncio.gather(*jobs)

    assert play(doubling, scene) == [[0], [2], [4], [6]]
    assert [items for _, items in doubling.batches] == [[0], [1, 3], [2]]


def test_what_nobody_waits_for_is_not_computed(doubling):
    async def scene(batcher):
        jobs = [batcher.submit("k", [n]) for n in range(4)]
        jobs[1].cancel()
        jobs[2].set_exception(TimeoutError())
        await asyncio.sleep(0)
        assert batcher.waiting == 2
        return await asyncio.gather(*jobs, return_exceptions=True)

    first, second, third, last = play(doubling, scene, wait=0.01)
    assert (first, last) == ([0], [6])
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, TimeoutError)
    assert doubling.batches == [("k", [0, 3])]


def test_who_leaves_while_it_computes_disturbs_nobody(doubling):
    async def scene(batcher):
        doubling.gate.clear()
        jobs = [batcher.submit("k", [n]) for n in range(3)]
        await doubling.begun(1)
        jobs[1].cancel()
        doubling.gate.set()
        return await jobs[0], await jobs[2]

    assert play(doubling, scene, wait=0.01) == ([0], [4])
    assert doubling.batches == [("k", [0, 1, 2])]


def test_a_full_queue_takes_no_more_until_something_leaves(doubling):
    async def scene(batcher):
        doubling.gate.clear()
        batcher.submit("k", [0])
        await doubling.begun(1)  # no longer in the queue
        jobs = [batcher.submit("k", [1, 2]), batcher.submit("k", [3])]
        with pytest.raises(QueueFull):
            batcher.submit("k", [4])
        assert batcher.waiting == 3
        jobs[0].cancel()
        await asyncio.sleep(0)
        last = batcher.submit("k", [5, 6])
        doubling.gate.set()
        return await last

    assert play(doubling, scene, max_queue=3) == [10, 12]


@pytest.mark.parametrize("bad", [None, "stop"])
def test_an_error_reaches_all_of_its_batch_and_nobody_else(doubling, bad):
    async def scene(batcher):
        jobs = [batcher.submit("k", items) for items in ([1], [bad])]
        jobs.append(batcher.submit("other", [2]))
        results = await asyncio.gather(*jobs, return_exceptions=True)
        return [*results, await batcher.submit("k", [3])]

    first, second, *rest = play(doubling, scene, wait=0.01)
    assert isinstance(first, TypeError | RuntimeError)
    assert type(first) is type(second)
    assert rest == [[4], [6]]


def test_two_threads_share_what_waits_and_compute_at_the_same_time(doubling):
    async def scene(batcher):
        doubling.gate.clear()
        jobs = [batcher.submit("k", [n]) for n in range(50)]
        await doubling.begun(2)  # the gate is shut, so that neither is done
        assert batcher.waiting == 0
        late = [batcher.submit("k", [n]) for n in (50, 51)]
        assert batcher.waiting == 2
        doubling.gate.set()
        return await asyncio.gather(*jobs, *late)

    results = play(doubling, scene, wait=0.01, max_batch=100, threads=2)
    assert results == [[2 * n] for n in range(52)]
    assert [len(items) for _, items in doubling.batches] == [25, 25, 2]


def test_a_small_batch_is_not_shared(doubling):
    async def scene(batcher):
        return await asyncio.gather(*(batcher.submit("k", [n]) for n in range(16)))

    play(doubling, scene, wait=0.01, max_batch=100, threads=2)
    assert [len(items) for _, items in doubling.batches] == [16]


def test_closing_computes_what_waits(doubling):
    async def scene(batcher):
        return [batcher.submit("k", [1]), batcher.submit("other", [2])]

    jobs = play(doubling, scene, wait=0.01)
    assert [job.result() for job in jobs] == [[2], [4]]
    assert not [t for t in threading.enumerate() if t.name.startswith("perron-compute")]
