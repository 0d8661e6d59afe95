// Node's https, http2 and fetch: node.mjs API URL CA VERSION KIND. Prints a line of JSON for each visit.
import fs from 'node:fs';
import http2 from 'node:http2';
import https from 'node:https';

const [api, url, caFile, version, kind] = process.argv.slice(2);
const ca = fs.readFileSync(caFile);
const limits = { ca, minVersion: `TLSv${version}`, maxVersion: `TLSv${version}` };
const agent = new https.Agent({ ...limits, keepAlive: false, maxCachedSessions: kind === 'full' ? 0 : 8 });
let session;

const say = (status, socket) => console.log(JSON.stringify({
  status, resumed: socket?.isSessionReused(), version: socket?.getProtocol(), alpn: socket?.alpnProtocol || undefined,
}));

const visits = {
  https: () => new Promise((done, failed) => {
    https.get(url, { agent }, answer => {
      const { socket } = answer;
      answer.resume().on('end', () => { say(answer.statusCode, socket); socket.on('close', done); });
    }).on('error', failed);
  }),
  http2: () => new Promise((done, failed) => {
    const connection = http2.connect(url, { ...limits, session });
    connection.on('error', failed).on('close', done);
    connection.socket.on('session', latest => { session = latest; });
    const { pathname, search } = new URL(url);
    const stream = connection.request({ ':path': pathname + search });
    stream.on('response', head => {
      say(head[':status'], connection.socket);
    }).on('error', failed).on('end', () => connection.close()).resume();
  }),
  // Its limits and authorities are options of the program. Says nothing of the connection.
  fetch: async () => {
    const answer = await fetch(url, { headers: { connection: 'close' } });
    await answer.text();
    say(answer.status);
  },
};

for (let visit = 0; visit < (kind === 'full' ? 1 : 2); visit++) await visits[api]();
process.exit(0);
