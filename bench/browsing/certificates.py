"""Certificates for test names: ECDSA P-256, each issued by an intermediate of its own root, as public ones are."""
import subprocess
from pathlib import Path


def openssl(folder, *command):
    subprocess.run(["openssl", *map(str, command)], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def sign(folder, name, subject, issuer, extensions):
    """NAME.key, and NAME.pem by the issuer."""
    openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
    openssl(folder, "req", "-new", "-key", f"{name}.key", "-subj", f"/CN={subject}", "-out", f"{name}.csr")
    (folder / "extensions").write_text("\n".join(extensions))
    by = ["-signkey", f"{name}.key"] if issuer is None else ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-days", "300", "-sha256", "-extfile", "extensions", "-out", f"{name}.pem")


def make(folder, names):
    """Makes root.pem, and NAME.pem (a chain) and NAME.key for each name."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    authority = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
    sign(folder, "root", "brisk page root", None, authority)
    sign(folder, "intermediate", "brisk page intermediate", "root", authority)
    for name in names:
        sign(folder, name, name, "intermediate", [f"subjectAltName=DNS:{name}", "extendedKeyUsage=serverAuth"])
        chain = (folder / f"{name}.pem").read_text() + (folder / "intermediate.pem").read_text()
        (folder / f"{name}.pem").write_text(chain)
    return folder
