"""Meeting all peers before TensorFlow starts, and a bound on TensorFlow's own start. Sockets and threads alone.

TensorFlow waits for a missing peer in silence, for a quarter of an hour and more. So the workers first meet here:
each listens on its own port and dials every other one, until all pairs have met in both directions. Environment
variables that name a proxy play no part.
"""

from tfdist.rendezvous.limit import time_limit
from tfdist.rendezvous.meeting import meet

__all__ = ["meet", "time_limit"]
