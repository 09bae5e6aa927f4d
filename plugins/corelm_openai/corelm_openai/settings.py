"""What users can set on the OpenAI frontend."""

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
    cors_origins: list[str] = Field(default=[], description="Browser origins that may call the API; * stands for any.")
    routes: list[str] = Field(default=[], description="Routes of other plugins to serve, by the names these gave them.")
    max_n: int = Field(default=16, ge=1, description="Most choices (n or best_of) a request may ask for.")
    max_prompts: int = Field(default=256, ge=1, description="Most prompts one completions request may hold.")
    max_body_mb: float = Field(default=16, gt=0, description="Largest request body, in MiB.")
    tenant_header: str = Field(
        default="x-corelm-tenant",
        min_length=1,
        description="Header that says who a request is for; before the field user.",
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
