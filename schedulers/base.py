"""The interface of scheduling in one import: View, Plan, `diff`, Policy.

The parts live in `view`, `tables`, `plan`, `moves` and `policy`; users and hosts import them from here.
"""

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.moves import (
    Activate,
    ActOnState,
    AddNode,
    AddTask,
    Deactivate,
    Move,
    MoveTask,
    ReleaseNode,
    RemoveTask,
    RequestNodes,
    Rescale,
    SetGrouping,
    diff,
)
from rstream.schedulers.plan import (
    Alternative,
    Batch,
    Execute,
    Plan,
    Reason,
    Settled,
    StateAction,
    TopologyPlan,
    plain,
    settle,
)
from rstream.schedulers.policy import Memory, Parameters, Policy
from rstream.schedulers.tables import Load, Slot, TaskId, TaskTable, Traffic, table_of
from rstream.schedulers.view import (
    EdgeView,
    Links,
    NodeView,
    OperatorView,
    TaskView,
    TierCosts,
    TopologyView,
    View,
)

__all__ = [
    "ActOnState",
    "Activate",
    "AddNode",
    "AddTask",
    "Alternative",
    "Batch",
    "Deactivate",
    "EdgeView",
    "Execute",
    "Ledger",
    "Links",
    "Load",
    "Memory",
    "Move",
    "MoveTask",
    "NodeView",
    "OperatorView",
    "Parameters",
    "Plan",
    "Policy",
    "Reason",
    "ReleaseNode",
    "RemoveTask",
    "RequestNodes",
    "Rescale",
    "SetGrouping",
    "Settled",
    "Slot",
    "StateAction",
    "TaskId",
    "TaskTable",
    "TaskView",
    "TierCosts",
    "TopologyPlan",
    "TopologyView",
    "Traffic",
    "View",
    "diff",
    "plain",
    "settle",
    "table_of",
]
