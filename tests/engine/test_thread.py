"""The ordered worker: one job after the other, in the order they were given."""

import threading

import pytest
import torch

from thinwire.engine.thread import OrderedWorker

CPU = torch.device("cpu")


def test_jobs_run_in_order_in_one_other_thread() -> None:
    worker, seen = OrderedWorker(), []
    go_on = threading.Event()

    def job(number: int) -> int:
        go_on.wait(timeout=20)
        seen.append((number, threading.current_thread().name))
        return number * 10

    results = [worker.submit(CPU, job, number) for number in range(5)]
    assert seen == []  # the caller did not wait
    go_on.set()
    assert [result.result(timeout=20) for result in results] == [0, 10, 20, 30, 40]
    assert [number for number, _ in seen] == list(range(5))
    assert len({name for _, name in seen}) == 1
    assert seen[0][1].startswith("thinwire")
    worker.close()


def test_an_error_stays_with_its_job() -> None:
    worker = OrderedWorker()
    failed = worker.submit(CPU, lambda: 1 / 0)
    later = worker.submit(CPU, lambda: "fine")
    with pytest.raises(ZeroDivisionError):
        failed.result(timeout=20)
    assert later.result(timeout=20) == "fine"
    worker.close()


def test_close_finishes_what_is_queued() -> None:
    worker, seen = OrderedWorker(), []
    for number in range(20):
        worker.submit(CPU, seen.append, number)
    worker.join_streams()  # no streams without a GPU
    worker.close()
    assert seen == list(range(20))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu_jobs_see_what_the_caller_queued() -> None:
    worker, device = OrderedWorker(), torch.device("cuda", 0)
    x = torch.zeros(1 << 24, device=device)
    for _ in range(50):
        x += 1
    done = worker.submit(device, x.mul_, 2)
    done.result(timeout=60)
    worker.join_streams()
    assert bool((x == 100).all())
    worker.close()


def test_without_a_gpu_in_turn_is_in_the_other_thread() -> None:
    worker = OrderedWorker()
    name = worker.submit_in_turn(CPU, lambda: threading.current_thread().name)
    assert name.result(timeout=20).startswith("thinwire")
    worker.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu_a_job_in_turn_is_queued_by_the_caller() -> None:
    worker, device = OrderedWorker(), torch.device("cuda", 0)
    streams = []

    def job() -> threading.Thread:
        streams.append(torch.cuda.current_stream(device))
        return threading.current_thread()

    done = worker.submit_in_turn(device, job)
    assert done.done() and done.result() is threading.current_thread()
    assert streams[0] != torch.cuda.current_stream(device)
    failed = worker.submit_in_turn(device, lambda: 1 / 0)
    assert isinstance(failed.exception(), ZeroDivisionError)
    worker.close()
