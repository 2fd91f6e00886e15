"""The errors that tfdist raises on purpose, and the exit code of each.

A message has three parts: the value that was found, the rule that it breaks and the remedy. Every
entry point turns a `TfdistError` into one line on standard error and `error.exit_code`; any other
exception is the program's own and leaves with code 1 and its traceback.
"""

FINISHED = 0
WRONG_INPUT = 64
PEER_MISSING = 69
PREEMPTED = 75


class TfdistError(Exception):
    """Base of the errors that a user can act upon."""

    exit_code = 1


class UserError(TfdistError, ValueError):
    """A flag, setting, argument or environment that cannot work: running it again changes nothing."""

    exit_code = WRONG_INPUT


class ConfigError(UserError):
    """A wrong flag, config file or setting."""


class ClusterError(UserError):
    """A cluster description that is malformed, contradicts itself or cannot serve the strategy."""


class BatchError(UserError):
    """A batch size, accumulation or data size that cannot be split as asked."""


class DataError(UserError):
    """A data set that cannot be read, or cannot be shared among workers safely."""


class UnsupportedError(UserError):
    """A Keras feature that cannot be offered under the strategy in use."""


class CheckpointError(UserError):
    """Checkpoints that cannot be read, do not fit the model, or can be written no more."""


class LossError(UserError):
    """A loss that is no number or far too large, where going back to a checkpoint is not possible or does not help."""


class PeerLostError(TfdistError, RuntimeError):
    """A peer did not appear in time, or went away. Run the whole job again."""

    exit_code = PEER_MISSING


class Preempted(SystemExit):
    """A machine goes away, and the training is saved: run the whole job again, and it goes on.

    Uncaught, it ends the process with code 75, as `sys.exit` does.
    """

    exit_code = PREEMPTED

    def __init__(self, message: str):
        super().__init__(PREEMPTED)
        self.message = message

    def __str__(self):
        return self.message
