// Java's HttpsURLConnection and HttpClient: Client API URL CA VERSION KIND. Prints a line of JSON for each visit.
import java.io.FileInputStream;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Client {
  public static void main(String[] arguments) throws Exception {
    String api = arguments[0], url = arguments[1], version = "TLSv" + arguments[3];
    boolean full = arguments[4].equals("full");
    System.setProperty("https.protocols", version);
    System.setProperty("jdk.tls.client.protocols", version);
    System.setProperty("http.keepAlive", "false");
    // Without it sessions of TLS 1.2 have IDs.
    System.setProperty("jdk.tls.client.enableSessionTicketExtension", String.valueOf(!arguments[4].equals("stored")));
    KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
    roots.load(null, null);
    try (FileInputStream file = new FileInputStream(arguments[2])) {
      roots.setCertificateEntry("root", CertificateFactory.getInstance("X.509").generateCertificate(file));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(roots);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    for (int visit = 0; visit < (full ? 1 : 2); visit++) {
      if (api.equals("HttpClient")) {
        HttpClient client = HttpClient.newBuilder().sslContext(context).build();
        HttpResponse<String> answer = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
        System.out.printf("{\"status\": %d, \"suite\": \"%s\", \"alpn\": \"%s\"}%n", answer.statusCode(),
            answer.sslSession().get().getCipherSuite(), answer.version() == HttpClient.Version.HTTP_2 ? "h2" : "http/1.1");
      } else {
        HttpsURLConnection connection = (HttpsURLConnection) new URL(url).openConnection();
        connection.setSSLSocketFactory(context.getSocketFactory());
        int status = connection.getResponseCode();
        String suite = connection.getCipherSuite();
        connection.getInputStream().readAllBytes();
        System.out.printf("{\"status\": %d, \"suite\": \"%s\"}%n", status, suite);
      }
    }
  }
}
