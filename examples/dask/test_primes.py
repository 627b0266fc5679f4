import primes
import pytest


@pytest.mark.parametrize("part", [30, 50, 100, 1000])
def test_parts_cover_every_number_once(trueup_sync, part):
    jobs = trueup_sync.run(primes.enqueue_parts(100, part))
    assert trueup_sync.drain() == len(jobs)
    assert trueup_sync.run(primes.total(jobs)) == 25


def test_a_part_may_be_counted_again(trueup_sync):
    trueup_sync.run_twice(primes.count_primes, 0, 100)
