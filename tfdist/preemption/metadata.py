"""What cloud machines say of themselves: the metadata servers of Google's and Amazon's.

GCE: https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption; its notice is 30 s ahead.
EC2: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html; two minutes ahead.
"""

import http.client
import json
import urllib.error
import urllib.request

from tfdist.preemption.listener import StopWatching

_ANSWER_SECONDS = 2.0
_TOKEN_SECONDS = 21600
# One lost packet at the start is no reason to watch no more.
_ATTEMPTS = 3
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # these addresses are this machine's own


class _Metadata:
    """Asks a metadata server; one that has never answered is given up, one that has is asked again and again."""

    cloud: str

    def __init__(self, address: str):
        self.address = address.rstrip("/")
        self._answered, self._failures = False, 0

    def look(self) -> str | None:
        """See `Watcher`."""
        try:
            found = self._ask()
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            self._failures += 1
            if self._failures >= _ATTEMPTS and not self._answered:
                raise StopWatching(
                    f"{self.address} is no metadata server of {self.cloud} ({error}), and is asked no more. Take this "
                    "watcher out where the job does not run there."
                ) from error
            return None
        self._answered = True
        return found

    def _ask(self) -> str | None:
        raise NotImplementedError

    def _send(self, method, path, **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.address + path, method=method, headers=names)
        with _direct.open(request, timeout=_ANSWER_SECONDS) as answer:
            return answer.read().decode().strip()


class GceMetadata(_Metadata):
    """Sees that Google Compute Engine takes a preemptible or spot machine away. A `Watcher`."""

    cloud = "Google's"

    def __init__(self, address: str = "http://metadata.google.internal"):
        super().__init__(address)

    def _ask(self):
        text = self._send("GET", "/computeMetadata/v1/instance/preempted", Metadata_Flavor="Google")
        if text not in ("TRUE", "FALSE"):
            raise ValueError(f"it says {text[:40]!r} of instance/preempted")
        return "GCE preempts this machine" if text == "TRUE" else None


class AwsMetadata(_Metadata):
    """Sees that EC2 stops, hibernates or terminates a spot instance, by IMDSv2. A `Watcher`."""

    cloud = "Amazon's"

    def __init__(self, address: str = "http://169.254.169.254"):
        super().__init__(address)
        self._token = ""

    def _ask(self):
        self._token = self._token or self._new_token()
        try:
            return self._action()
        except urllib.error.HTTPError as error:
            if error.code != http.client.UNAUTHORIZED:
                raise
        self._token = self._new_token()  # it had run out
        return self._action()

    def _new_token(self):
        return self._send("PUT", "/latest/api/token", X_aws_ec2_metadata_token_ttl_seconds=str(_TOKEN_SECONDS))

    def _action(self):
        try:
            text = self._send("GET", "/latest/meta-data/spot/instance-action", X_aws_ec2_metadata_token=self._token)
        except urllib.error.HTTPError as error:
            if error.code == http.client.NOT_FOUND:
                return None
            raise
        found = json.loads(text)
        return f"EC2 announces: {found['action']} at {found['time']}"
