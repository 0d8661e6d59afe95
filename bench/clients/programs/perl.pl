# Perl's IO::Socket::SSL: perl.pl PORT CA VERSION KIND PATH. Prints a line of JSON for each visit.
use strict; use warnings;
use IO::Socket::SSL;
my ($port, $ca, $version, $kind, $path) = @ARGV;
my %versions = ('1.2' => 'TLSv1_2', '1.3' => 'TLSv1_3');
my $context = IO::Socket::SSL::SSL_Context->new(
    SSL_ca_file => $ca, SSL_verify_mode => SSL_VERIFY_PEER, SSL_version => $versions{$version}, SSL_session_cache_size => 8,
    SSL_alpn_protocols => ['http/1.1'],
    SSL_create_ctx_callback => sub {
        Net::SSLeay::CTX_set_options($_[0], Net::SSLeay::OP_NO_TICKET()) if $version eq '1.2' && $kind eq 'stored';
    }) or die "$SSL_ERROR\n";
for (1 .. ($kind eq 'full' ? 1 : 2)) {
    my $tls = IO::Socket::SSL->new(PeerAddr => 'localhost', PeerPort => $port, SSL_hostname => 'localhost',
        SSL_reuse_ctx => $context, SSL_session_key => 'localhost') or die "$SSL_ERROR\n";
    print $tls "GET $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    my $answer = join '', <$tls>;
    my ($status) = $answer =~ /^HTTP\/1.1 (\d+)/;
    printf qq({"status": %d, "resumed": %s, "version": "%s", "suite": "%s"}\n), $status,
        $tls->get_session_reused ? 'true' : 'false', $tls->get_sslversion, $tls->get_cipher;
    $tls->close;
}
