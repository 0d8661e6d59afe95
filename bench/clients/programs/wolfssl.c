/* wolfSSL: wolfssl PORT CA VERSION KIND PATH. Prints a line of JSON for each visit. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

static int dial(const char *port) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo("localhost", port, &hints, &found)) exit(2);
    int fd = socket(found->ai_family, found->ai_socktype, 0);
    if (connect(fd, found->ai_addr, found->ai_addrlen)) exit(2);
    return fd;
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    const char *port = arguments[1], *version = arguments[3], *kind = arguments[4], *path = arguments[5];
    int is_12 = !strcmp(version, "1.2");
    wolfSSL_Init();
    WOLFSSL_CTX *context = wolfSSL_CTX_new(is_12 ? wolfTLSv1_2_client_method() : wolfTLSv1_3_client_method());
    if (wolfSSL_CTX_load_verify_locations(context, arguments[2], NULL) != WOLFSSL_SUCCESS) return 2;
#ifdef HAVE_SESSION_TICKET
    if (!strcmp(kind, "ticket")) wolfSSL_CTX_UseSessionTicket(context);
#endif
    WOLFSSL_SESSION *session = NULL;
    for (int visit = 0; visit < (strcmp(kind, "full") ? 2 : 1); visit++) {
        WOLFSSL *tls = wolfSSL_new(context);
        wolfSSL_UseSNI(tls, WOLFSSL_SNI_HOST_NAME, "localhost", 9);
        wolfSSL_check_domain_name(tls, "localhost");
        if (session) wolfSSL_set_session(tls, session);
        wolfSSL_set_fd(tls, dial(port));
        char text[8192], reason[80];
        if (wolfSSL_connect(tls) != WOLFSSL_SUCCESS) {
            fprintf(stderr, "handshake: %s\n", wolfSSL_ERR_error_string(wolfSSL_get_error(tls, 0), reason));
            return 1;
        }
        int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
        wolfSSL_write(tls, text, length);
        int total = 0, got;
        while ((got = wolfSSL_read(tls, text + total, sizeof text - 1 - total)) > 0) total += got;
        int error = wolfSSL_get_error(tls, got);
        text[total] = 0;
        if (error != WOLFSSL_ERROR_ZERO_RETURN && error != WOLFSSL_ERROR_NONE)
            fprintf(stderr, "reading: error %d, %s\n", error, wolfSSL_ERR_error_string(error, reason));
        printf("{\"status\": %d, \"resumed\": %s, \"version\": \"%s\", \"suite\": \"%s\", \"library\": \"%s\"}\n",
               total > 12 ? atoi(text + 9) : 0, wolfSSL_session_reused(tls) ? "true" : "false", wolfSSL_get_version(tls),
               wolfSSL_get_cipher_name(tls), wolfSSL_lib_version());
        session = wolfSSL_get1_session(tls);
        wolfSSL_shutdown(tls);
        close(wolfSSL_get_fd(tls));
        wolfSSL_free(tls);
    }
    return 0;
}
