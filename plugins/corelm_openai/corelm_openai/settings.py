"""What users can set on the OpenAI frontend."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, SecretStr


def _filled(key: SecretStr) -> SecretStr:
    if not key.get_secret_value():
        raise ValueError("a key is empty")
    return key


ApiKey = Annotated[SecretStr, AfterValidator(_filled)]


class OpenAISettings(BaseModel):
    """Settings of the OpenAI frontend: ``CORELM_OPENAI_PORT``, ``--openai.port`` and so on."""

    host: str = Field(default="127.0.0.1", description="Address to listen on; 0.0.0.0 listens on every IPv4 address.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    api_keys: list[ApiKey] = Field(
        default=[], description="Keys that clients may use; none means that no key is asked for."
    )
    api_keys_file: Path | None = Field(
        default=None, description="File with more keys, one a line; lines that begin with # are comments."
    )
    tls_cert: Path | None = Field(
        default=None, description="Certificate chain (PEM) to serve HTTPS with; needs tls_key too."
    )
    tls_key: Path | None = Field(default=None, description="The certificate's private key (PEM), not encrypted.")
    tls_ca: Path | None = Field(
        default=None, description="Certificates (PEM) of who may sign those of clients, which must then show one."
    )
    root_path: str = Field(
        default="", pattern="^(/[A-Za-z0-9._~-]+)*$", description="Path under which everything is served, such as /llm."
    )
    cors_origins: list[str] = Field(default=[], description="Browser origins that may call the API; * stands for any.")
    routes: list[str] = Field(default=[], description="Routes of other plugins to serve, by the names these gave them.")
    tool_format: str = Field(
        default="auto",
        description="How the model writes calls of tools: hermes, llama3_json, mistral, pythonic or that of another"
        " plugin; auto chooses by the model's vocabulary.",
    )
    reasoning_format: str = Field(
        default="auto",
        description="How the model writes what it thinks before it answers: think, that of another plugin, or none for"
        " not telling it from the answer; auto is think if the model has a token for it.",
    )
    response_role: str = Field(default="assistant", min_length=1, description="Role of what the model says in chats.")
    max_n: int = Field(default=16, ge=1, description="Most choices (n or best_of) a request may ask for.")
    max_prompts: int = Field(default=256, ge=1, description="Most prompts one request may hold.")
    max_body_mb: float = Field(default=16, gt=0, description="Largest request body, in MiB.")
    responses_max: int = Field(
        default=1000, ge=1, description="Most responses that /v1/responses keeps, in memory; the least used go first."
    )
    responses_max_mb: float = Field(default=64, gt=0, description="Most MiB that these may have together.")
    responses_ttl_s: float = Field(
        default=24 * 3600, gt=0, description="Seconds that a response is kept after its last use."
    )
    tenant_header: str = Field(
        default="x-corelm-tenant",
        min_length=1,
        description="Header that says who a request is for; before the field user, and that before the API key.",
    )
    access_log: bool = Field(
        default=True, description="Log a line for each request; for health checks and metrics only at level debug."
    )
    log_requests_max_chars: int = Field(
        default=0, ge=0, description="Characters of each request's body to log, prompts included; 0 logs none."
    )
    metrics: bool = Field(default=True, description="Serve metrics for Prometheus at /metrics.")
    metrics_prefix: str = Field(
        default="corelm",
        pattern="^[a-zA-Z_][a-zA-Z0-9_]*$",
        description="What the names of metrics begin with; with vllm they are vLLM's.",
    )
    open_metrics: bool = Field(default=False, description="Serve /metrics without asking for an API key.")
    otlp_endpoint: str | None = Field(
        default=None,
        pattern="^https?://",
        description="Where to send a trace span for each request (OTLP over HTTP), such as http://localhost:4318.",
    )
    session_header: str = Field(
        default="x-session-id", min_length=1, description="Header that says which conversation a request belongs to."
    )
    keep_alive_s: int = Field(
        default=90, ge=1, description="Seconds an idle connection stays open; longer than client pools'."
    )
    io_timeout_s: float = Field(
        default=60,
        gt=0,
        description="Seconds after which a client that stops sending its request or reading its reply is cut.",
    )
