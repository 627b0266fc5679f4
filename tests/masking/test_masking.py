"""Real formats of secrets, each with a marked secret; and texts that look alike and hold none."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trueup.masking import MASK, is_secret_name, mask, mask_value

S = "Zq7hunter2"  # the secret
# Put together here, so that no scanner of this repository takes them for real ones.
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
JWT = ".".join(["eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxMjM0NTY3ODkwIn0", S])
PEM = f"-----BEGIN RSA PRIVATE {'KEY'}-----\nMIIE{S}\nabc{S}==\n-----END RSA PRIVATE {'KEY'}-----"
BASIC = b64encode(f"ann:{S}".encode()).decode()

HIDDEN = {
    "URL": f"mysql+pymysql://ann:{S}@db:3306/shop",
    "URL with several hosts": f"postgresql://ann:{S}@a:5432,b:5433/shop",
    "URLs in a list": f"redis://:{S}@a:6379,redis://:{S}@b:6379",
    "URL with a token for a user": f"https://{S}{S}{S}@git.example/x.git",
    "URL of NATS with a token": f"nats://{S}@a:4222",
    "URL that was cut off": f"postgresql://ann:{S}",
    "URL of git in an error": f"fatal: unable to access 'https://ann:{S}@git.example/x.git/': 403",
    "login without a scheme": f"could not connect to ann:{S}@db.example:5432/shop",
    "login without a scheme, in quotes": f'dial "ann:{S}@db"',
    "login without a scheme, to an address": f"(ann:{S}@10.0.0.1:5432)",
    "login without a scheme, IPv6": f"ann:{S}@[::1]:5432",
    "login with an @ in it": f"ann:{S}@{S}@db.example",
    "URL with an @ in its password": f"postgresql://ann:{S}@{S}@db.example/shop",
    "libpq": f"host=db user=ann password={S} dbname=shop",
    "libpq with a quoted value": rf"host=db password='{S} \' {S}' dbname=shop",
    "libpq sslpassword": f"sslkey=/k sslpassword={S} host=db",
    "libpq passfile": f"passfile=/home/ann/{S} host=db",
    "libpq in a repr": repr(f"host=db password='{S} {S}' x=\"1\""),
    "SQL": f"ALTER ROLE ann WITH ENCRYPTED PASSWORD '{S}' VALID UNTIL 'infinity'",
    "SQL with a doubled quote": f"create user ann password 'it''s {S}'",
    "SQL with an escape string": f"create user ann password E'{S}\\n'",
    "SQL with dollar quotes": f"create user ann password $x${S}$x$",
    "SQL of MySQL": f"CREATE USER ann IDENTIFIED BY '{S}'",
    "SQL options": f"CREATE USER MAPPING FOR ann SERVER s OPTIONS (user 'ann', password '{S}')",
    "SQL condition": f"select 1 from users where password = '{S}' and id = 1",
    "Bearer": f"Authorization: Bearer {S}.{S}",
    "Basic": f"authorization: Basic {BASIC}",
    "Digest": f'Authorization: Digest username="ann", realm="r", nonce="{S}", response="{S}"',
    "Token": f"AUTHORIZATION: Token {S}",
    "ApiKey": f"Authorization: ApiKey {S}",
    "no scheme": f"Authorization: {S}",
    "AWS4": f"Authorization: AWS4-HMAC-SHA256 Credential={AWS_ID}/20240101/x, SignedHeaders=host, Signature={S}",
    "Proxy-Authorization": f"Proxy-Authorization: Basic {S}",
    "Bearer on its own": f"refused: bearer {S}{S}",
    "Basic on its own": f"sent Basic {BASIC}",
    "headers of a request": f"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {S}\r\nAccept: */*",
    "headers in a repr": repr(f"GET /\r\nCookie: sid={S}; b={S}\r\nAccept: */*"),
    "headers as a dict": repr({"Authorization": f"Bearer {S}", "Accept": "*/*"}),
    "headers as JSON lists": json.dumps({"Authorization": [f"Bearer {S}"], "Set-Cookie": [f"a={S}", f"b={S}"]}),
    "headers as pairs": repr([(b"host", b"a"), (b"authorization", f"Bearer {S}".encode())]),
    "headers as JSON pairs": json.dumps([["X-Api-Key", S], ["Accept", "*/*"]]),
    "headers as names and values": json.dumps([{"name": "X-Api-Key", "value": S}]),
    "header for curl": f"curl -H 'Authorization: Bearer {S}' https://a.example/",
    "header with a cookie for curl": f'curl -H "Cookie: a={S}; b={S}" https://a.example/',
    "user for curl": f"curl -u ann:{S} https://a.example/",
    "Cookie": f"Cookie: theme=dark; sessionid={S}",
    "Set-Cookie": f"set-cookie: sessionid={S}; HttpOnly; Path=/",
    "X-Api-Key": f"X-Api-Key: {S}",
    "X-Auth-Token": f"x-auth-token: {S}",
    "X-Vault-Token": f"X-Vault-Token: {S}",
    "Private-Token": f"PRIVATE-TOKEN: {S}",
    "JSON": json.dumps({"api_key": S, "user": "ann"}),
    "JSON, compact": json.dumps({"user": "ann", "accessToken": S, "x": 1}, separators=(",", ":")),
    "JSON in JSON": json.dumps({"body": json.dumps({"refresh_token": S, "user": "ann"})}),
    "JSON, nested": json.dumps({"auth": {"client_secret": S}}),
    "JSON, number": '{"password": 4711' + S + ', "x": 1}',
    "JSON, over two lines": f'{{\n  "secret":\n    "{S}"\n}}',
    "repr": repr({"apikey": S, "secret": S}),
    "repr of bytes": repr({b"token": S.encode()}),
    "dataclass": f"Config(user='ann', passwd='{S}', port=1)",
    "call": f"connect(host='db', password=\"{S}\", port=5432)",
    "source": f'    token: str = "{S}"',
    "assignment": f"SECRET_KEY = '{S}'",
    "Ruby": f'{{"password"=>"{S}", "x"=>1}}',
    "Go": f"{{User:ann Password:{S} Port:5432}}",
    "JavaScript": f"{{ user: 'ann', password: '{S}' }}",
    "tuple": repr(("password", S)),
    "command line as a list": repr(["mysql", "--password", S, "shop"]),
    "command line": f"mysql --password {S} shop",
    "command line with =": f"tool --client-secret={S} --verbose",
    "YAML": f"db:\n  user: ann\n  password: {S}\n  port: 5432",
    "YAML, in quotes": f"token: '{S}'",
    "YAML, several words": f"passphrase: correct {S} battery {S}",
    "YAML, item": f"- api_key: {S}",
    "YAML, block": f"db:\n  private_key: |\n    {S}\n    {S}\n  port: 1",
    "YAML, flow": f"{{user: ann, password: {S}, port: 1}}",
    "YAML, environment": f"- name: DB_PASSWORD\n  value: {S}\n- name: X",
    "environment": f"PATH=/bin\nSECRET_KEY={S}\nDB_PASS={S}\nexport API_TOKEN={S}",
    "environment, AWS": f"AWS_ACCESS_KEY_ID={AWS_ID} AWS_SECRET_ACCESS_KEY={S}/{S}+{S}",
    "environment, MySQL": f"MYSQL_PWD={S} mysqldump",
    "TOML": f'password = "{S}"',
    "INI": f"passwd = {S}",
    "query string": f"GET /x?user=ann&access_token={S}&page=2",
    "query string, first": f"https://a.example/x?token={S}",
    "query string, presigned": f"https://b.example/o?X-Amz-Credential={AWS_ID}%2F2024&X-Amz-Signature={S}&x=1",
    "query string, SAS": f"https://b.example/o?sv=2024&sig={S}%3D&se=1",
    "form": f"grant_type=password&client_secret={S}&user=ann",
    "XML": f"<user>ann</user><password>{S}</password>",
    "Azure": f"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={S}=",
    "netrc": f"machine a.example login ann password {S}",
    "npm": f"//registry.example/:_authToken={S}",
    "requests": f"requests.get(url, auth=('ann', '{S}'))",
    "sentence": f"login failed with password: {S} for ann",
    "JWT": f"sent {JWT} to a",
    "private key": f"key:\n{PEM}\nend",
    "private key in a repr": repr({"pem": PEM}),
    "private key, cut off": PEM[:-20],
    "private key, cut before": "…" + PEM[34:],
    "Slack": "xox" + f"b-123456-{S}",
    "Slack's hook": f"https://hooks.slack.com/services/T00/B00/{S}",
    "GitHub": "gh" + f"p_{S * 3}",
    "GitLab": "gl" + f"pat-{S * 2}",
    "Stripe": "sk" + f"_live_{S * 2}",
    "webhook": "wh" + f"sec_{S}",
    "session of PHP": f"PHPSESSID={S}",
    "session of Java": f"JSESSIONID={S}",
    "session of Express": f"connect.sid=s%3A{S}",
    "pw": f"bind_pw={S}",
    "German": f"Passwort: {S}",
    "pre-shared key": f"PresharedKey = {S}=",
    "kubeconfig": f"users:\n- name: a\n  user:\n    client-key-data: {S}==",
    "Docker's login": json.dumps({"auths": {"a.example": {"auth": BASIC}}}),
    "JSON Web Key": json.dumps({"kty": "RSA", "d": S * 2}),
    "URL in a query string": f"/x?url=postgresql%3A%2F%2Fann%3A{S}%40db%2Fshop&n=1",
    "form in a query string": f"body=password%3D{S}%26user%3Dann",
    "JSON in a query string": quote(json.dumps({"password": S})),
    "JSON in HTML": f"&quot;password&quot;: &quot;{S}&quot;",
    "HTML": f'<input type="password" name="password" value="{S}">',
    "XML with attributes": f"<wsse:Password Type='text'>{S}</wsse:Password>",
    "XML of a property list": f"<key>password</key><string>{S}</string>",
    "part of a form": f'Content-Disposition: form-data; name="password"\r\n\r\n{S}\r\n--x',
    "Python, three quotes": f'password = """{S}\n{S}"""',
    "TOML, three quotes": f"password = '''\n{S}\n{S}'''",
    "Python, item": f"os.environ['DB_PASSWORD'] = '{S}'",
    "call of a setter": f'config.setPassword("{S}")',
    "YAML, below": f"password:\n  value: {S}\nuser: ann",
    "YAML, list": f"passwords:\n  - {S}\n  - {S}",
    "YAML, tag": f"password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  {S}\n",
    "sentence of an API": f"Incorrect API key provided: {S}.",
    "mysql -p": f"mysql -u root -p{S} shop",
    "sshpass -p": f"sshpass -p '{S}' ssh a",
    "docker login -p": f"docker login -u ann -p {S}",
    "redis-cli -a": f"redis-cli -h a -a {S} ping",
    "sqlplus": f"sqlplus ann/{S}@orcl",
    "URL of Oracle": f"jdbc:oracle:thin:ann/{S}@//a:1521/x",
    "curl -u without a blank": f"curl -uann:{S} https://a.example/",
    "redis.conf": f"requirepass {S}",
    "netrc with an account": f"machine a login ann account x password {S}",
    "hash of PostgreSQL": f"SCRAM-SHA-256$4096:{S}{S}==$x:{S}",
    "hash of bcrypt": f"$2b$12${S * 3}",
    "hash of argon2": f"$argon2id$v=19$m=65536$c29tZXNhbHQ${S}",
    "Telegram": f"https://api.telegram.org/bot123456789:AA{S * 4}/getMe",
    "Square": "sq0" + f"atp-{S * 2}",
    "Databricks": "dapi" + "ab12" * 8 + f" token={S}",
    "Docker Hub": "dckr" + f"_pat_{S * 2}",
    "Groq": "gsk" + f"_{S * 3}",
    "Supabase": "sb" + f"_secret_{S * 2}",
    "Atlassian": "ATATT" + f"3xFf{S * 2}",
    "Fernet": "gAAAAA" + f"B{S * 6}==",
    "PASETO": f"v2.local.{S * 3}",
    "Teams' hook": f"https://a.webhook.office.com/webhookb2/{S}@b/IncomingWebhook/{S}/x",
    "AUTH of Redis": f"AUTH {S}",
    "AUTH of Redis with a user": f"-> AUTH ann {S}",
    "HELLO of Redis": f"HELLO 3 AUTH ann {S} SETNAME x",
    "MIGRATE of Redis": f"MIGRATE h 6379 k 0 1000 AUTH2 ann {S}",
    "MONITOR of Redis": f'1700000000.1 [0 127.0.0.1:5] "AUTH" "ann" "{S}"',
    "error of Redis": f"ERR unknown command, with args beginning with: 'AUTH' '{S}'",
    "ACL of Redis": f"ACL SETUSER ann on >{S} ~* +@all",
    "file of users of Redis": f"user ann on >{S} ~* +@all",
    "AUTH LOGIN of SMTP": f"AUTH LOGIN {S}==",
    "AUTH PLAIN of SMTP": f"AUTH PLAIN {S}==",
    "PASS of FTP": f"USER ann\r\nPASS {S}\r\n",
    "LOGIN of IMAP": f'a1 LOGIN "ann" "{S}"',
    "pgpass": f"db.example:5432:shop:ann:{S}",
    "pgpass for all": f"*:*:*:ann:{S}",
    "pgpass in a sentence": f'line 3 of the file, "10.0.0.1:5432:*:ann:{S}", is no good',
    "pgpass with an escaped colon": rf"localhost:5432:shop:ann:a\:{S}",
    "code of OAuth": f"GET /callback?code={S}{S}&state=x",
    "verifier of OAuth": f"code_verifier={S}&client_id=x",
    "assertion of OAuth": f"grant_type=x&assertion={S}{S}",
    "device of OAuth": json.dumps({"device_code": S + S}),
    "SAML": f"SAMLResponse={S}{S}",
    "SQL of MySQL 8": f"CREATE USER ann IDENTIFIED WITH caching_sha2_password BY '{S}'",
    "SQL of Oracle": f"CREATE USER ann IDENTIFIED BY {S}",
    "SQL that sets a password": f"SET PASSWORD FOR 'ann'@'h' = '{S}'",
    "SQL of pgcrypto": f"select crypt('{S}', gen_salt('bf')), pgp_sym_decrypt(x, '{S}')",
    "curl with several options": f"curl -sSfu ann:{S} https://a.example/",
    "curl as a list": repr(["curl", "-u", f"ann:{S}", "https://a.example/"]),
    "mysqldump as a list": repr(["/usr/bin/mysqldump", "-uroot", f"-p{S}", "shop"]),
    "ldapsearch": f"ldapsearch -D cn=a -w {S} -b x",
    "mongosh": f"mongosh -u ann -p {S} h",
    "az login": f"az login -u ann -p {S}",
    "unzip": f"unzip -P {S} a.zip",
    "keytool": f"keytool -storepass {S} -keypass {S}",
    "smbclient": f"smbclient -U ann%{S} //h/s",
    "rabbitmqctl": f"rabbitmqctl add_user ann {S}",
    "htpasswd": f"htpasswd -b f ann {S}",
    "aws configure": f"aws configure set aws_secret_access_key {S}{S}{S}",
    "login of Oracle": f"could not reach ann/{S}@//db:1521/svc",
    "auth of a client": f"basic_auth=('elastic', '{S}') or HTTPBasicAuth('ann', '{S}')",
    "session of Laravel": f"laravel_session={S}{S}",
    "JWT that was cut off": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI{S}",
    "hash of Django": f"pbkdf2_sha256$260000$abc$x{S}{S}=",
    "Terraform": "abcdefghij1234.atlas" + f"v1.{S}{S}",
    "Discord": "MTk4NjIyNDgzNDcxOTI1MjQ4" + f".Cl2FMQ.{S * 3}",
    "Azure's secret": f"abc8Q~{S * 4}",
    "Google's refresh token": f"1//0{S * 3}",
    "Notion": f"ntn_{S * 4}",
    "Bitbucket": f"ATBB{S * 4}",
    "Fly": f"FlyV1 fm2_{S * 3}",
    "Zapier's hook": f"https://hooks.zapier.com/hooks/catch/1/{S}/",
    "pydantic": f"1 validation error for Login\npassword\n  String should have at least 20 characters [type=string_too_short, input_value='{S}', input_type=str]\n    For further information visit https://errors.pydantic.dev/2.11/v/string_too_short",
    "pydantic, nested": f"2 validation errors for A\nuser.api_key.str\n  Bad [type=value_error, input_value='{S}', input_type=str]\nn\n  Bad [type=int_parsing, input_value='x', input_type=str]",
    "pydantic, a mapping that is cut": f"1 validation error for Login\n  Bad [type=value_error, input_value={{'user': 'ann', 'passw...rd': 'x', 'y': '{S}'}}, input_type=dict]",
    "key of PostgreSQL": f"Key (token)=({S}) already exists.",
    "keys of PostgreSQL": f'Key (user_id, api_key)=(1, {S}) is not present in table "keys".',
    "XML of properties": f'<property name="connection.password">{S}</property>',
    "XML, CDATA": f"<password><![CDATA[{S}]]></password>",
    "part of a form with a type": f'name="api_key"\r\nContent-Type: text/plain\r\n\r\n{S}\r\n--b',
    "brackets in a query string": f"user%5Bpassword%5D={S}&x=1",
    "Dockerfile": f"ENV DB_PASSWORD {S}",
    "csh": f"setenv DB_PASSWORD {S}",
    "fish": f"set -gx DB_PASSWORD {S}",
    "Windows": f"setx DB_PASSWORD {S}",
    "French": f"mot de passe : {S}",
    "Spanish": f"contraseña: {S}",
    "Portuguese": f"senha={S}",
    "Dutch": f'{{"wachtwoord": "{S}"}}',
    "Polish": f"hasło: {S}",
    "Russian": f"пароль: {S}",
    "Japanese": f"パスワード: {S}",
    "Chinese": f"密码：{S}",
    "mnemonic": f"mnemonic: {S} {S} {S}",
    "seed phrase": f"seed_phrase='{S} {S}'",
    "sshpass -e": f"SSHPASS={S} sshpass -e ssh h",
    "npm, all registries": f"_auth={S}=",
    "recovery codes": f"recovery_codes: {S}",
    "Grafana": "glc" + f"_{S * 4}",
    "Postman": f"PMAK-{S * 4}",
    "Dynatrace": "dt0" + f"c01.{'A' * 24}.{S * 6}",
    "Sourcegraph": "sgp" + f"_{S * 4}",
    "password in several places": f"password={S} then {{'password': '{S}'}} and postgresql://u:{S}@h",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_secret_is_hidden_in_every_format(text: str) -> None:
    masked = mask(text)
    assert S not in masked
    assert BASIC not in masked
    assert AWS_ID not in masked
    assert MASK in masked
    assert mask(masked) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("connect(host='db', password='x1', port=5432)", "connect(host='db', password='***', port=5432)"),
        ("Authorization: Bearer abc1234\r\nHost: a", "Authorization: Bearer ***\r\nHost: a"),
        ('{"api_key": "x1", "user": "ann"}', '{"api_key": "***", "user": "ann"}'),
        ("db:\n  password: x1\n  port: 5432", "db:\n  password: ***\n  port: 5432"),
        ("GET /x?token=x1&page=2 HTTP/1.1", "GET /x?token=***&page=2 HTTP/1.1"),
        ("SECRET_KEY=x1\nDEBUG=1", "SECRET_KEY=***\nDEBUG=1"),
        ("mysql --password x1 shop", "mysql --password *** shop"),
        ("alter role ann password 'x1' login", "alter role ann password '***' login"),
        ("cannot reach ann:x1@db.example:5432/shop", "cannot reach ann:***@db.example:5432/shop"),
        ("login failed with password: x1 for ann", "login failed with password: *** for ann"),
        ("(url='https://a.example/?token=x1', n=1)", "(url='https://a.example/?token=***', n=1)"),
        ("<password>x1</password><user>ann</user>", "<password>***</password><user>ann</user>"),
        ("('password', 'x1') failed", "('password', '***') failed"),
    ],
)
def test_what_surrounds_a_secret_stays_readable(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "token bucket",
        "a token bucket with 5 tokens: max_tokens=4096, prompt_tokens: 12",
        "password must be 8 chars",
        "password: must be at least 8 characters",
        "send.password: String should have at least 8 characters",
        "password: missing",
        "token: invalid",
        'FATAL:  password authentication failed for user "ann"',
        "the password of ann expired",
        "fencing token 7 is stale",
        "def login(user: str, password: str, token: str | None = None) -> None:",
        '{"password": null, "token": false}',
        "password=None",
        "columns: ['id', 'password', 'email']",
        'column "password" does not exist',
        "bypass=1 compass: north trespass",
        "PWD=/srv/app OLDPWD=/srv",
        "primary_key=7 idempotency_key=job-7 unique_key: addr:42",
        "tokenizer=fast secretary: Ann",
        "basic authentication, bearer of bad news, Basic usage, bearer authentication",
        "Unexpected token }",
        "KeyError: 'user'",
        "mail ann@example.org about it; mailto:ann@example.org; From:ann@example.org",
        "git@github.com:org/repo.git",
        "charge:2@20260601T120000.000250Z",
        "docker.io/library/postgres:16@sha256:0123abcd",
        "npm:left-pad@1.3.0 at 10:42:01@worker",
        "see http://localhost:8080/page:2, or http://localhost:8080.",
        "https://ann@example.org/x",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        '{"email":"ann@example.org","user":"ann"}',
        "enter password:",
        "author: ann, authority: x, key: 7, keys=3",
        "job 7 of kind send_email failed: ValueError: 12 is not 13",
        "/usr/lib/python3.11/token.py:12",
        "import secrets; from token import x",
        "<password/>",
        "eyJust a word",
        "GET /search?q=a%3Db%26c%3A%22d%22&n=100%25",
        "a &quot;quoted&quot; word &amp; it&#39;s fine",
        '<password type="text"/><user>ann</user>',
        "docker run -p 80:80 nginx; redis-cli -p 6379; actions/checkout@v4",
        "token:\nuser: ann",
        "check_token(request)",
        "ERR AUTH <password> called without any password configured for the default user",
        "AUTH failed; AUTH required",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "HELLO 3",
        "PASS tests/test_x.py::test_a",
        "PASS in 3 s, 12 PASSED",
        "LOGIN failed for user ann",
        "a1 OK LOGIN completed",
        "a row identified by its id, identified by the key 7",
        "10:20:30:40, ratio 1:2:3:4:5, 00:1a:2b:3c:4d:5e",
        "2001:db8::1:2:3:4, ::ffff:10.0.0.1, [fe80::1]:5432",
        "app/main.py:12:34: error, File a.py:1024:5:3, main.py:1200:ERROR:root:boom",
        "arn:aws:s3:eu-central-1:1234:bucket:name",
        "2026-01-01T10:20:30.123:45:x, a:b:c:d:e",
        "redis:6379:0:queue:jobs",
        "{'a': 1, 'code': 'E42', 'state': 'done', 'user_session': 7}",
        "GET /items?code=SUMMER&page=2, status_code=500&code=7, code=ECONNREFUSED, code: 42P01",
        "user ann on host db, user ann on",
        "docker run -p 8080:80 -u 1000:1000 x; psql -p 5432 -U ann; mysql -h db",
        "session_id=42 sid=7 power=3 $1$ and $2 and $250",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert mask(text) == text


PIECES = [
    *"@:/?&=,;'\"\\ \n[]{}()<>-b1*$#|",
    *("password", "token", "secret", "authorization", "cookie", "pwd", "api_key", "identified by", "value", "login"),
    *(
        "Bearer ",
        "Basic ",
        "://",
        "redis://",
        "https://",
        "eyJ",
        "AKIA",
        "-----BEGIN PRIVATE KEY-----",
        "--",
        "x",
        "is",
    ),
    *(
        "-----END PRIVATE KEY-----",
        "***",
        "auth=('",
        "-u ",
        "$x$",
        ": |\n  ",
        "str",
        "\\n",
        "\r\n",
        "ann",
        "hunter2",
        "AUTH ",
        "PASS ",
        "sshpass -p",
        "*:*:a:b:",
        "&code=",
        "é",
    ),
]


@settings(deadline=None, max_examples=250)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example("password: x is\npassword: ***")
@example("password='auth=('AUTH ")
@example("password='auth=('AUTH -p")
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=20))
def test_any_secret_is_hidden_where_its_notation_escapes_it(secret: str) -> None:
    marked = f"Zq7{secret}Zq7"
    for text in (
        json.dumps({"client_secret": marked, "user": "ann"}),
        json.dumps([["x-api-key", marked]]),
        repr({"token": marked}),
        repr([("api_key", marked)]),
        f"GET /?access_token={quote(marked, safe='')}&page=2",
        f"alter role ann password '{marked.replace(chr(39), chr(39) * 2)}'",
    ):
        assert "Zq7" not in mask(text)


def _seconds(text: str) -> float:
    """Of this process alone: others may keep the machine busy."""
    started = time.process_time()
    mask(text)
    return time.process_time() - started


HOSTILE = [
    *PIECES,
    *(
        "password: |\n",
        "password: a\n",
        "auth=('a', '",
        "password='\\",
        'secret":["a",',
        "token=\\\\",
        "login a password ",
    ),
    *(
        "u:p@h",
        "a:b@",
        "Cookie: a=b; ",
        "password: x ",
        "('password', '",
        "<password>",
        "name password value: ",
        "-u a:",
    ),
    *(
        "Basic abcd1234",
        "password : str ",
        "eyJaaaaaaaaa.",
        "password\\\\",
        "0123456789:",
        "-----END PRIVATE KEY-----a",
    ),
    *(
        "mysql a ",
        "redis-cli a -",
        "%3D%",
        "a%3Dpassword%3Da&",
        "&quot;",
        "password a=",
        'password="""',
        "passwords:\n  - a\n",
    ),
    *(
        "AUTH ",
        "AUTH a\n",
        "user a on >",
        "mysql -p",
        "curl -u ",
        "'AUTH', ",
        "a:5432:",
        "*:*:",
        "&code=",
        "identified with ",
    ),
    *(
        "input_value=",
        "a\n input_value=...",
        ")=(",
        "(token)=(a",
        "<![CDATA[",
        'name="',
        "<a key='",
        "%5Ba%5D=",
        "ENV a ",
    ),
    *("mnemonic: a ", "_auth=", "пароль: ", 'name="a"\nb:', "token\n input_value=a, input_type="),
    *("token\n", "password, 'a' ", "pass-pass-", "[[[[password", "x-amz-signature&"),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_masked_in_linear_time(piece: str) -> None:
    """Eight times the text in about eight times the time: the bound is far from both 8 (linear) and 64 (quadratic)."""
    for before in ("", "password='", "password: |\n", "-----BEGIN PRIVATE KEY-----"):
        small, large = (before + piece * (size // len(piece)) for size in (4_000, 32_000))
        most = 28 * min(_seconds(small), _seconds(small)) + 0.03
        assert _seconds(large) < most or _seconds(large) < most


@pytest.mark.parametrize(
    "name", ["password", "DB_PASSWORD", "apiKey", "x-api-key", "refresh_token", "Set-Cookie", "pwd"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["", "key", "user", "tokens", "bypass", "token_count", "password_length", "author"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_masked_inside_containers() -> None:
    value = {
        "headers": {"Authorization": f"Bearer {S}", b"x-api-key": S.encode(), "accept": "*/*"},
        "pairs": [("cookie", S), ("host", "a")],
        "urls": (f"redis://:{S}@a", {f"password={S}"}),
        "token": None,
        "secret": 4711,
        "deep": [[[[[[[[[[[S]]]]]]]]]]],
        "count": 3,
    }
    masked = mask_value(value)
    assert S not in repr(masked)
    assert masked["count"] == 3
    assert masked["token"] is None
    assert masked["secret"] == MASK
    assert masked["headers"]["accept"] == "*/*"


@pytest.mark.parametrize("name", ["name", "key", "Name", b"name"])
@pytest.mark.parametrize("value", ["value", "Value"])
def test_a_secret_is_hidden_in_values_as_in_their_text(name: str | bytes, value: str) -> None:
    variables = [{name: "DB_PASSWORD", value: S}, {name: "COLOUR", value: "red"}]
    masked = mask_value(variables)
    assert S not in mask(repr(variables))
    assert S not in repr(masked)
    assert [*masked[1].values()] == ["COLOUR", "red"]
