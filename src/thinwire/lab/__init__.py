"""A cluster on one machine: network namespaces with shaped links, torchrun inside.

with Lab(nodes=4, rate="1gbit") as lab:
    lab.run(["torchrun", "train.py"], workers_per_node=2)
    print(lab.counters())
"""

from thinwire.errors import LabError
from thinwire.lab.lab import Lab, unavailable
from thinwire.lab.namespaces import LinkCount, Node
from thinwire.lab.probe import RateCheck

__all__ = [
    "Lab",
    "LabError",
    "LinkCount",
    "Node",
    "RateCheck",
    "unavailable",
]
