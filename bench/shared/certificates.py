"""Certificates for test names, each issued by an intermediate of a root of its own, as public ones are."""
import subprocess
from pathlib import Path

AUTHORITY = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign", "subjectKeyIdentifier=hash"]


def openssl(folder, *command):
    return subprocess.run(["openssl", *map(str, command)], cwd=folder, check=True, capture_output=True)


def sign(folder, name, subject, issuer, extensions, bits=None, days=300):
    """NAME.key, which is P-256 or RSA with this size, and NAME.pem by the issuer; without issuer self-signed."""
    kind = ["rsa", "-pkeyopt", f"rsa_keygen_bits:{bits}"] if bits else ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    openssl(folder, "genpkey", "-algorithm", *kind, "-out", f"{name}.key")
    (folder / f"{name}.key").chmod(0o600)
    openssl(folder, "req", "-new", "-key", f"{name}.key", "-subj", f"/CN={subject}", "-out", f"{name}.csr")
    (folder / "extensions").write_text("\n".join(extensions))
    by = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial"] if issuer else ["-signkey", f"{name}.key"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-days", days, "-sha256", "-extfile", "extensions", "-out",
            f"{name}.pem")


def make(folder, names):
    """Makes root.pem, and NAME.pem (a chain) and NAME.key for each name."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sign(folder, "root", "brisk page root", None, AUTHORITY)
    sign(folder, "intermediate", "brisk page intermediate", "root", AUTHORITY)
    for name in names:
        sign(folder, name, name, "intermediate", [f"subjectAltName=DNS:{name}", "extendedKeyUsage=serverAuth"])
        with open(folder / f"{name}.pem", "a") as chain:
            chain.write((folder / "intermediate.pem").read_text())
    return folder
