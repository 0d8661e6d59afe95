"""A key server of brisk, with a folder of keys and one gateway that may use them."""
import hashlib
import subprocess
from pathlib import Path

from .certificates import openssl
from .processes import Process, free_port, pinned
from .programs import BRISK


class KeyServer(Process):
    """Holds the keys NAME.key of the folder `made`. `lines` are further keys of its configuration."""

    def __init__(self, folder, made, names, cores=None, lines=""):
        self.folder, self.admin, port = Path(folder), free_port(), free_port()
        subprocess.run([BRISK, "keyserver", "init", self.folder], check=True, stdout=subprocess.DEVNULL)
        self.gateway = self.folder / "gateways/gateway-1"
        for name in names:
            key = self.folder / f"keys/{name}.key"
            key.write_bytes((made / f"{name}.key").read_bytes())
            key.chmod(0o600)
        file = self.folder / "keyserver.toml"
        text = file.read_text().replace("0.0.0.0:8444", f"127.0.0.1:{port}").replace("127.0.0.1:9444", f"127.0.0.1:{self.admin}")
        file.write_text(text.replace("key_folder", f"{lines}key_folder"))
        super().__init__(pinned(cores, BRISK, "keyserver", "--config", file), self.folder / "log", port)

    def digest(self, name):
        """The SHA-256 of a public key, which names it in the protocol."""
        key = openssl(self.folder / "keys", "pkey", "-in", f"{name}.key", "-pubout", "-outform", "DER")
        return hashlib.sha256(key.stdout).digest()
