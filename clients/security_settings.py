"""How every client connects to brokers safely, and proves who it is: the properties of TLS and SASL.

The names of mechanisms, stores and versions are literals: a client without TLS and SASL loads none of them.
"""

from __future__ import annotations

from holdfast_log.clients.settings import Setting, SettingType

STRING, LIST, PASSWORD = SettingType.STRING, SettingType.LIST, SettingType.PASSWORD

SECURITY_ROWS = (
    Setting(
        "security.protocol", STRING, "PLAINTEXT",
        "Protocol of the connections to brokers: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT or SASL_SSL. With SASL "
        "the client says who it is, and proves it, by sasl.mechanism.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Setting(
        "sasl.mechanism", STRING, None,
        "Mechanism by which the client authenticates to a SASL listener: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512 or OAUTHBEARER. PLAIN and OAUTHBEARER send the secret as it is: use them with "
        "SASL_SSL. The client never falls back to another one.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    ),
    Setting(
        "sasl.oauthbearer.token.file", STRING, None,
        "File with the token for OAUTHBEARER, which something else keeps up to date. The client reads it "
        "for each authentication.",
    ),
    Setting(
        "sasl.oauthbearer.token.provider", STRING, None,
        "module:function that returns a valid token (str) for OAUTHBEARER, in place of "
        "sasl.oauthbearer.token.file. The client calls it for each authentication, and waits for it.",
    ),
    Setting(
        "sasl.username", STRING, None,
        "Name of the user as whom the client authenticates, for PLAIN and SCRAM.",
    ),
    Setting(
        "sasl.password", PASSWORD, None,
        "Password of the user, for PLAIN and SCRAM.",
    ),
    Setting(
        "sasl.jaas.config", PASSWORD, None,
        "Instead of sasl.username and sasl.password: Kafka's login module with both, as Java's clients have "
        'it: org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";',
    ),
    Setting(
        "ssl.truststore.location", STRING, None,
        "Path of a file with the certificate authorities that the client trusts, in PEM or PKCS12. Unset: "
        "those that the system trusts.",
    ),
    Setting(
        "ssl.truststore.type", STRING, None,
        "Format of ssl.truststore.location. JKS stands for what keytool makes by default, which is PKCS12 "
        "since Java 9. Unset: the format that the file has.",
        choices=("PEM", "PKCS12", "JKS"),
    ),
    Setting(
        "ssl.truststore.password", PASSWORD, None,
        "Password of a trust store in the format PKCS12.",
    ),
    Setting(
        "ssl.truststore.certificates", PASSWORD, None,
        "The trusted certificates themselves in PEM, in place of ssl.truststore.location.",
    ),
    Setting(
        "ssl.keystore.location", STRING, None,
        "Path of a file with the client's certificate and private key, in PEM or PKCS12.",
    ),
    Setting(
        "ssl.keystore.type", STRING, None,
        "Format of ssl.keystore.location, as for ssl.truststore.type.",
        choices=("PEM", "PKCS12", "JKS"),
    ),
    Setting(
        "ssl.keystore.password", PASSWORD, None,
        "Password of ssl.keystore.location.",
    ),
    Setting(
        "ssl.key.password", PASSWORD, None,
        "Password of an encrypted private key in PEM.",
    ),
    Setting(
        "ssl.keystore.key", PASSWORD, None,
        "The private key itself in PEM, in place of ssl.keystore.location.",
    ),
    Setting(
        "ssl.keystore.certificate.chain", PASSWORD, None,
        "The certificates of ssl.keystore.key in PEM, the client's first.",
    ),
    Setting(
        "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that the client speaks.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    Setting(
        "ssl.cipher.suites", LIST, (),
        "Cipher suites that the client uses, by their registered names or by OpenSSL's. The three of TLS 1.3 "
        "come together or not at all. Empty: those that OpenSSL takes for safe.",
    ),
    Setting(
        "ssl.endpoint.identification.algorithm", STRING, "https",
        "https: the broker's certificate must name the host that the client connects to. Empty: any "
        "trusted certificate is accepted.",
        choices=("https", ""),
    ),
)  # fmt: skip
"""The settings of every client, in the order of the documentation."""
