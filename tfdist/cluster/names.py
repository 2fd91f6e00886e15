"""The words for tasks."""

TRAINING_TYPES = ("chief", "worker", "ps")
EVALUATOR = "evaluator"


def task_name(task_type: str, task_index: int) -> str:
    """The name of a task in messages; there is one chief, so it has no number."""
    return "chief" if task_type == "chief" else f"{task_type} {task_index}"
