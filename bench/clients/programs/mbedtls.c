/* mbed TLS: mbedtls PORT CA VERSION KIND PATH. Prints a line of JSON for each visit. */
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int result, const char *what) {
    char reason[120];
    if (!result) return;
    mbedtls_strerror(result, reason, sizeof reason);
    fprintf(stderr, "%s: %s\n", what, reason);
    exit(1);
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    const char *kind = arguments[4], *path = arguments[5];
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_x509_crt roots;
    mbedtls_ssl_config config;
    mbedtls_ssl_session session;
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random);
    mbedtls_x509_crt_init(&roots);
    mbedtls_ssl_config_init(&config);
    mbedtls_ssl_session_init(&session);
    check(mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0), "seed");
    check(mbedtls_x509_crt_parse_file(&roots, arguments[2]), "roots");
    check(mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_CLIENT, MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT),
          "configuration");
    mbedtls_ssl_conf_ca_chain(&config, &roots, NULL);
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random);
    mbedtls_ssl_conf_session_tickets(&config, strcmp(kind, "ticket") ? MBEDTLS_SSL_SESSION_TICKETS_DISABLED
                                                                     : MBEDTLS_SSL_SESSION_TICKETS_ENABLED);
    const char *protocols[] = {"http/1.1", NULL};
    check(mbedtls_ssl_conf_alpn_protocols(&config, protocols), "ALPN");
    for (int visit = 0; visit < (strcmp(kind, "full") ? 2 : 1); visit++) {
        mbedtls_net_context tcp;
        mbedtls_ssl_context tls;
        mbedtls_net_init(&tcp);
        mbedtls_ssl_init(&tls);
        check(mbedtls_net_connect(&tcp, "localhost", arguments[1], MBEDTLS_NET_PROTO_TCP), "connect");
        check(mbedtls_ssl_setup(&tls, &config), "setup");
        check(mbedtls_ssl_set_hostname(&tls, "localhost"), "name");
        if (visit) check(mbedtls_ssl_set_session(&tls, &session), "session");
        mbedtls_ssl_set_bio(&tls, &tcp, mbedtls_net_send, mbedtls_net_recv, NULL);
        /* A resumed handshake has no certificate. */
        int certificates = 0, result;
        while (tls.state != MBEDTLS_SSL_HANDSHAKE_OVER) {
            certificates |= tls.state == MBEDTLS_SSL_SERVER_HELLO_DONE;
            if ((result = mbedtls_ssl_handshake_step(&tls))) check(result, "handshake");
        }
        unsigned char text[8192];
        int length = snprintf((char *)text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
        mbedtls_ssl_write(&tls, text, length);
        int total = 0, got;
        while ((got = mbedtls_ssl_read(&tls, text + total, sizeof text - 1 - total)) > 0) total += got;
        text[total] = 0;
        printf("{\"status\": %d, \"resumed\": %s, \"version\": \"%s\", \"suite\": \"%s\", \"alpn\": \"%s\", \"library\": \"%s\"}\n",
               total > 12 ? atoi((char *)text + 9) : 0, certificates ? "false" : "true", mbedtls_ssl_get_version(&tls),
               mbedtls_ssl_get_ciphersuite(&tls), mbedtls_ssl_get_alpn_protocol(&tls), MBEDTLS_VERSION_STRING);
        if (!visit) check(mbedtls_ssl_get_session(&tls, &session), "session");
        mbedtls_ssl_close_notify(&tls);
        mbedtls_net_free(&tcp);
        mbedtls_ssl_free(&tls);
    }
    return 0;
}
