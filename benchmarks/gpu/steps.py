"""Steps of a whole model: their times, what they consist of, and memory."""

import statistics

import torch
from ceilings import decode_bytes, prompt_operations
from clock import CUDA, synchronize
from driver import Driver

TARGETS = {1: 0.75}
"""Share of what the device can do, by sequences."""
TOP = 10
SAMPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}


def measure(bench, record):
    """Time prompts and steps, with all that the executor has."""
    sizes, ceilings = bench.sizes, bench.ceilings
    driver = Driver(bench.model, sizes)
    report_memory(record, driver.info)
    for count in sizes.steps:
        driver.start(count)  # compiles what the sizes of this step need
        driver.finish()
        seconds = driver.start(count)
        floor = ceilings.seconds(operations=count * prompt_operations(bench.config, sizes.step_context))
        record.add_time(f"prompts of {count} x {sizes.step_context}", seconds, floor)
        report_steps(bench, record, driver, count, "one at a time", depth=1)
        if driver.info.pipeline_depth > 1:
            report_steps(bench, record, driver, count, "two at a time", depth=2)
        record.add(f"kernels of a step of {count}", "see the file", kernels=profile(driver))
        driver.finish()
    driver.start(count, **SAMPLED)
    report_steps(bench, record, driver, count, "sampled", depth=driver.info.pipeline_depth)
    if CUDA:
        peak, total = torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[1]
        record.add("memory at most", gib(peak), share=peak / total, bytes=peak)


def measure_without_graphs(bench, record):
    """The same steps, but each kernel launched by the host."""
    assert bench.ceilings  # before the KV cache takes all memory
    driver = Driver(bench.model, bench.sizes, graphs=False)
    for count in bench.sizes.steps:
        driver.start(count)
        report_steps(bench, record, driver, count, "launched one by one", depth=driver.info.pipeline_depth)
        driver.finish()


def report_steps(bench, record, driver, count, how, *, depth):
    """Time decode steps of `count` sequences."""
    sizes = bench.sizes
    driver.decode(sizes.timed_steps // 4, depth=depth)
    seconds = statistics.median(driver.decode(sizes.timed_steps, depth=depth))
    num_bytes = decode_bytes(bench.config, count, sizes.step_context, bench.dtype.itemsize)
    floor = bench.ceilings.seconds(num_bytes=num_bytes)
    record.add_time(f"step of {count} x {sizes.step_context}, {how}", seconds, floor, target=TARGETS.get(count))


def report_memory(record, info):
    """What loading found and took."""
    tokens = info.num_blocks * info.block_size
    record.add("KV cache", f"{tokens} tokens", blocks=info.num_blocks, details=dict(info.details))
    if CUDA:
        graphs = sum(
            segment["total_size"] for segment in torch.cuda.memory_snapshot() if segment["segment_pool_id"] != (0, 0)
        )
        record.add("memory of CUDA graphs", gib(graphs), bytes=graphs)
        record.add("memory after loading", gib(torch.cuda.memory_allocated()), bytes=torch.cuda.memory_allocated())


def profile(driver):
    """The kernels that a step spends most of its time in, in microseconds."""
    kinds = torch.profiler.ProfilerActivity
    driver.decode(1)
    with torch.profiler.profile(activities=[kinds.CUDA if CUDA else kinds.CPU]) as found:
        driver.decode(1)
        synchronize()
    name = "self_device_time_total" if CUDA else "self_cpu_time_total"
    events = sorted(found.key_averages(), key=lambda event: -getattr(event, name))
    return [{"name": event.key, "us": getattr(event, name), "calls": event.count} for event in events[:TOP]]


def gib(num_bytes):
    """A size for people."""
    return f"{num_bytes / 2**30:.2f} GiB"
