"""Which keys of a run's configuration are copied to checkpoint metadata, and which never are."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from langgraph_durable._core.metadata import checkpoint_metadata, names_credential


def table(text: str) -> list[str]:
    return text.split()


LEFT_OUT = table("""
    api_key apiKey api-key API_KEY apikey ApiKey APIKey APIkey apikeys api_keys x-api-key X-API-Key
    X-Api-Key openai_api_key OPENAI_API_KEY openaiApiKey OpenAIApiKey openai_key anthropic_api_key
    ANTHROPIC_API_KEY groqapikey google_api_key azure_key tavily_key llm_key api_key_2 api_key_prod
    API_KEY_OPENAI user.api_key providers/openai/api_key
    token Token TOKEN access_token accessToken ACCESS_TOKEN access-token AccessToken accesstoken
    refresh_token refreshToken id_token session_token sessionToken aws_session_token bearer_token
    auth_token authToken authtoken x-auth-token X-Amz-Security-Token github_token GITHUB_TOKEN
    githubToken gh_token GITHUB_TOKEN_PROD slack_bot_token telegramBotToken hf_token
    HUGGINGFACEHUB_API_TOKEN api_token csrf_token csrftoken X-CSRFToken X-CSRF-Token XSRF-TOKEN
    oauth_token oauth2_token OAuth2Token sas_token verification_token reset_token token_value
    token_1 token_data user_token access_tokens refreshTokens jwt JWT jwt_token id_token_hint
    secret secrets Secret client_secret clientSecret CLIENT_SECRET clientsecret app_secret
    webhook_secret jwt_secret consumer_secret api_secret shared_secret token_secret secret_value
    secret_key SECRET_KEY django_secret_key secret_key_base secretKey secretkey
    aws_secret_access_key AWS_SECRET_ACCESS_KEY awsSecretAccessKey aws_access_key_id accessKeyId
    password Password PASSWORD passwords db_password dbPassword DB_PASSWORD PGPASSWORD
    userPassword user-password password2 password_hash hashed_password passwd pwd MYSQL_PWD
    passphrase pass_phrase passcode passkey smtp_pass db_pass DB_PASS ftpPass pass_word
    private_key privateKey PRIVATE_KEY ssh_private_key ssh_key gpg_key rsa_key privatekey
    private_key_pem encryption_key signing_key master_key account_key AccountKey storage_account_key
    subscription_key Ocp-Apim-Subscription-Key license_key app_key deploy_key encryption_keys
    service_key service_account_key service_account_json
    authorization Authorization AUTHORIZATION proxy-authorization Proxy-Authorization
    authorization_header authorization_code auth auth_header authHeader auth_code basic_auth
    http_auth bearer Bearer
    cookie Cookie cookies set-cookie Set-Cookie session_cookie cookie_header cookie_jar
    credential credentials aws_credentials GOOGLE_APPLICATION_CREDENTIALS credentials_json creds
    dbCreds otp otp_code totp_secret mfa_code recovery_code seed_phrase code_verifier cvv
    session_key JSESSIONID kubeconfig
    database_url DATABASE_URL db_uri redis_url connection_string connectionString conn_str dsn
    SENTRY_DSN
""")

KEPT = table("""
    user_id userId thread_id session_id sessionId run_id assistant_id graph_id tenant_id client_id
    account_id organization org_id customer_id langgraph_auth_user_id langgraph_step langgraph_node
    langgraph_version created_by x-request-id
    author authors Author co_author authority authorities authored_by authorized is_authorized
    authenticated auth_type auth_provider auth_method auth_user_id auth_enabled authorization_url
    unauthorized
    token_count tokenCount max_tokens maxTokens tokens tokens_used num_tokens total_tokens
    input_tokens output_tokens prompt_tokens completion_tokens reasoning_tokens max_new_tokens
    max_completion_tokens token_limit token_budget token_usage token_type token_ids token_url
    tokenizer tokenizer_name tokenization tokenized eos_token pad_token stop_token next_page_token
    nextPageToken page_token continuation_token cost_per_token time_to_first_token
    token_expires_at token_expires_in token_address
    key keys Key key_name key_id primary_key foreign_key sort_key partition_key cache_key
    idempotency_key routing_key group_key public_key publicKey input_key output_key memory_key
    project_key issue_key object_key storage_key state_key product_key i18n_key key_count keyboard
    keyboard_layout keyword keywords keyspace monkey turkey donkey hotkey keynote
    password_reset_required password_changed_at passwordPolicy has_password requires_password
    forgot_password show_password has_api_key api_key_name
    secretary secretariat secretary_name secret_name is_secret cookie_consent cookieConsent
    cookie_name cookies_enabled credential_type use_credentials
    passenger passengers passport compass pass pass_rate first_pass bypass password_strength
    encryption encryption_enabled private is_private service service_name account access
    access_level accessible api api_version api_base api_url base_url model model_name provider
    temperature language locale region country_code zip_code postal_code error_code status code
    database database_name db_name redis_host url uri callback_url webhook_url string
    data value test header environment version session cooking cook bear beard jwks_uri
    salt description label labels credence
""")


@pytest.mark.parametrize("key", LEFT_OUT)
def test_credential_is_left_out(key: str) -> None:
    assert names_credential(key)


@pytest.mark.parametrize("key", KEPT)
def test_other_key_is_kept(key: str) -> None:
    assert not names_credential(key)


@pytest.mark.parametrize("key", ["", "_", "1", "é", "ключ", "\ud800", "a" * 10_000, "A" * 10_000])
def test_odd_key_is_kept(key: str) -> None:
    assert not names_credential(key)


def merged(
    own: dict[str, Any],
    *sources: dict[str, Any] | None,
    only: list[str] | None = None,
    warned: set[str] | None = None,
) -> dict[str, Any]:
    return checkpoint_metadata(own, *sources, only=only, warned=set() if warned is None else warned)


def test_scalars_of_both_sources_are_copied_and_the_first_wins() -> None:
    run, configurable = {"a": 1, "b": "run"}, {"b": "conf", "c": 1.5, "d": True, "thread_id": "t"}
    assert merged({"a": 0}, run, None, configurable) == {"a": 0, "b": "run", "c": 1.5, "d": True}


def test_what_is_not_a_scalar_or_is_internal_is_not_copied() -> None:
    assert merged({}, {"x": [1], "y": {"z": 1}, "n": None, "__pregel_x": 1}) == {}


def test_credentials_are_not_copied_but_those_of_the_put_itself_stay() -> None:
    secrets = {"openai_api_key": "sk-1", "user_id": "u"}
    assert merged({"password": "own"}, secrets) == {"password": "own", "user_id": "u"}


def test_what_somebody_has_copied_from_the_config_into_the_put_is_judged_like_the_config() -> None:
    config = {
        "api_key": "sk-1",
        "headers": {"a": 1},
        "user_id": "u",
        "run_id": "r",
        "step": 1,
    }
    put = {**config, "source": "loop"}
    assert merged(put, config) == {name: put[name] for name in put if name != "api_key"}
    assert merged(put, config, only=["user_id"]).keys() == {"user_id", "run_id", "step", "source"}


def test_only_the_named_keys_and_the_run_are_copied(caplog: pytest.LogCaptureFixture) -> None:
    source = {"user_id": "u", "public_token": "p", "run_id": "r", "api_key": "sk-1"}
    got = merged({}, source, only=["public_token"])
    assert got == {"public_token": "p", "run_id": "r"}
    assert not caplog.records


def test_each_key_is_warned_of_once_and_its_value_is_never_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warned: set[str] = set()
    with caplog.at_level(logging.DEBUG, "langgraph_durable"):
        for _ in range(3):
            merged(
                {}, {"api_key": "sk-1"}, {"api_key": "sk-1", "db_password": "pw-1"}, warned=warned
            )
    assert [record.args for record in caplog.records] == [("api_key",), ("db_password",)]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert "sk-1" not in caplog.text
    assert "pw-1" not in caplog.text
    assert "metadata_keys=" in caplog.text
