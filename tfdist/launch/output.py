"""Where the output of a worker goes: to the launcher's own, and to a log file.

The chief's appears as it is, a progress bar on a terminal too; the others' lines get their names and go to
standard error, so that standard output is the chief's alone.
"""

import contextlib
import fcntl
import os
import pathlib
import sys
import termios
import threading

_writing = threading.Lock()


class Output:
    """The output of one worker, standard output and standard error together.

    Attributes:
      end: the file descriptor that the worker gets; None if it shall inherit the launcher's.
    """

    def __init__(self, name: str, is_chief: bool, log: pathlib.Path | None):
        self._prefix = b"" if is_chief else f"[{name}] ".encode()
        self._log = log.open("wb") if log else contextlib.nullcontext()
        self._reader, self.end = _channel(is_chief) if log or not is_chief else (-1, None)
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def start(self) -> None:
        """Begins to copy. Call it once the worker has its end."""
        if self.end is not None:
            os.close(self.end)
            self._thread.start()

    def finish(self, timeout: float) -> None:
        """Waits until all was copied; at most `timeout` seconds, for a stray process may still hold the other end."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _copy(self):
        terminal = sys.stderr if self._prefix else sys.stdout
        with self._log as log:
            for part in _lines(self._reader) if self._prefix else _parts(self._reader):
                if log:
                    log.write(part)
                    log.flush()
                with _writing, contextlib.suppress(OSError):
                    terminal.buffer.write(self._prefix + part)
                    terminal.flush()


def _channel(is_chief: bool) -> tuple[int, int | None]:
    """A pipe; for the chief a terminal of its own if the launcher has one, so that it prints what it would there."""
    if not (is_chief and sys.stdout.isatty()):
        return os.pipe()
    reader, end = os.openpty()
    mode = termios.tcgetattr(end)
    mode[1] &= ~termios.OPOST  # the real terminal makes its own line ends
    termios.tcsetattr(end, termios.TCSANOW, mode)
    size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(end, termios.TIOCSWINSZ, size)
    return reader, end


def _parts(reader):
    with contextlib.suppress(OSError):  # what a closed terminal ends with
        while part := os.read(reader, 65536):
            yield part
    os.close(reader)


def _lines(reader):
    rest = b""
    for part in _parts(reader):
        *lines, rest = (rest + part).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest + b"\n"
