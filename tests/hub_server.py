"""A server that speaks the hub's protocol, as huggingface_hub calls it: what is in a repository, and its files."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "8f0c3d1a" * 5
LFS = (".safetensors", ".bin", ".gguf")


@dataclass
class Repository:
    files: dict[str, bytes]
    licence: str = "mit"
    gated: bool = False
    wrong: str = ""  # a file whose stated hash is another's
    claimed: int = 0  # bytes that the weights are said to have; 0: as many as they have


@dataclass
class Hub:
    """Its repositories, and what it was asked."""

    repositories: dict[str, Repository]
    url: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    broken: str = ""  # the file that is cut off in the middle, once
    fails_then: bool = False  # whether the server is gone after that
    down: bool = False
    token: str = ""  # which an upload must carry
    uploaded: dict[str, bytes] = field(default_factory=dict)  # by hash


def folder_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@contextlib.contextmanager
def serving(repositories: dict[str, Repository]) -> Iterator[Hub]:
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def do_PUT(self) -> None:
            hub.uploaded[self.path.rpartition("/")[2]] = self.content()
            self.reply(200, b"")

        def do_POST(self) -> None:
            """An upload: a repository, how each file is sent, where large ones go, and the commit."""
            path, content = self.path.partition("?")[0], self.content()
            hub.asked.append(("POST", path, ""))
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self.reply(401, b"{}")
            if path == "/api/repos/create":
                about = json.loads(content)
                name = f"{about['organization']}/{about['name']}" if about.get("organization") else about["name"]
                hub.repositories.setdefault(name, Repository({}))
                return self.json({"url": f"{hub.url}/{name}", "id": name})
            if path == "/api/validate-yaml":
                return self.json({"errors": [], "warnings": []})
            if path.endswith("/preupload/main"):
                names = [file["path"] for file in json.loads(content)["files"]]
                large = {True: "lfs", False: "regular"}
                return self.json(
                    {"files": [{"path": n, "uploadMode": large[n.endswith(LFS)], "shouldIgnore": False} for n in names]}
                )
            if path.endswith(".git/info/lfs/objects/batch"):
                upload = [
                    {**o, "actions": {"upload": {"href": f"{hub.url}/put/{o['oid']}"}}}
                    for o in json.loads(content)["objects"]
                ]
                return self.json({"transfer": "basic", "objects": upload})
            match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path)
            assert match, path
            files = hub.repositories[match[1]].files
            for line in map(json.loads, content.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    files[line["value"]["path"]] = hub.uploaded[line["value"]["oid"]]
            return self.json({"commitOid": COMMIT, "commitUrl": f"{hub.url}/{match[1]}/commit/{COMMIT}"})

        def content(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def json(self, value: object) -> None:
            self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path, self.headers.get("Range", "")))
            if hub.down:
                self.reply(503, b"down")
            elif match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/([^/]+)", path):
                self.listing(match[1], match[2], match[3])
            elif match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self.file(hub.repositories[(match[1] or "") + match[2]], match[4], body)
            else:
                self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})

        def listing(self, kind: str, name: str, revision: str) -> None:
            repo = hub.repositories.get(name if kind == "models" else f"datasets/{name}")
            if repo is None:
                return self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if repo.gated:
                return self.reply(403, b"{}", {"X-Error-Code": "GatedRepo"})
            if revision not in ("main", "v1", COMMIT):
                return self.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            about = {
                "id": name,
                "sha": COMMIT,
                "private": False,
                "gated": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "cardData": {"license": repo.licence},
                "siblings": [stated(repo, path) for path in repo.files],
            }
            return self.reply(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

        def file(self, repo: Repository, name: str, body: bool) -> None:
            data = repo.files[name]
            start = int(re.findall(r"\d+", self.headers.get("Range", "bytes=0-"))[0])
            etag = hashlib.sha256(data).hexdigest() if name.endswith(LFS) else blob_id(data)
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            cut = name == hub.broken and body
            self.reply(206 if start else 200, data[start:], headers, body, cut)
            if cut:
                hub.broken, hub.down = "", hub.fails_then

        def reply(
            self, status: int, data: bytes, headers: dict[str, str] | None = None, body: bool = True, cut: bool = False
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data[: len(data) // 2] if cut else data)
            self.close_connection = cut

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def stated(repo: Repository, path: str) -> dict[str, object]:
    """What the hub says of a file: git's hash, and of a large one its own."""
    data = repo.files[path] + (b"!" if path == repo.wrong else b"")
    size = repo.claimed if repo.claimed and path.endswith(LFS) else len(repo.files[path])
    about = {"rfilename": path, "size": size, "blobId": blob_id(data)}
    large = {"sha256": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 130}
    return about | ({"lfs": large} if path.endswith(LFS) else {})


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
