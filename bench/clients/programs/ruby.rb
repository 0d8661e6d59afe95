# Ruby's OpenSSL: ruby.rb URL CA VERSION KIND. Prints a line of JSON for each visit.
require 'json'
require 'openssl'
require 'socket'
require 'uri'

url, ca, version, kind = URI(ARGV[0]), *ARGV[1..]
context = OpenSSL::SSL::SSLContext.new
context.ca_file = ca
context.verify_mode = OpenSSL::SSL::VERIFY_PEER
context.min_version = context.max_version = { '1.2' => OpenSSL::SSL::TLS1_2_VERSION, '1.3' => OpenSSL::SSL::TLS1_3_VERSION }[version]
context.alpn_protocols = ['http/1.1']
context.options |= OpenSSL::SSL::OP_NO_TICKET if [version, kind] == %w[1.2 stored]
context.session_cache_mode = OpenSSL::SSL::SSLContext::SESSION_CACHE_CLIENT
session = nil
context.session_new_cb = ->(pair) { session = pair[1] }
(kind == 'full' ? 1 : 2).times do
  tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new('localhost', url.port), context)
  tls.hostname = 'localhost'
  tls.session = session if session
  tls.connect
  tls.write("GET #{url.request_uri} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
  answer = tls.read
  puts JSON.generate(status: answer[/\AHTTP\/1.1 (\d+)/, 1].to_i, resumed: tls.session_reused?, version: tls.ssl_version,
                     suite: tls.cipher[0], alpn: tls.alpn_protocol)
  tls.close
end
