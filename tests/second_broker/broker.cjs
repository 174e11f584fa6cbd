// aedes on loopback, all in memory. The first word is the port; a second one names a JSON file:
// {tls: {ca, cert, key}, acl: TEXT}, where acl is what mosquitto's acl_file would be, and who
// shows a certificate is the user of its common name. Says "ready" when it listens.
const fs = require("fs");
const net = require("net");
const tls = require("tls");
const { Aedes } = require("aedes");

const [port, file] = process.argv.slice(2);
const { tls: files, acl } = file ? JSON.parse(fs.readFileSync(file)) : {};

function rights(text) {
  const found = []; // [user or null for patterns, words, filter]
  let user = "";
  for (const line of text.split("\n")) {
    const [kind, access, filter] = line.trim().split(/\s+/);
    if (kind === "user") user = access;
    else if (kind === "topic") found.push([user, access, filter]);
    else if (kind === "pattern") found.push([null, access, filter]);
  }
  return found;
}

function fits(filter, topic) {
  const have = topic.split("/");
  const want = filter.split("/");
  if (want[want.length - 1] === "#") have.length = want.length; // as many levels as asked for
  return have.length === want.length && want.every((w, i) => w === "+" || w === "#" || w === have[i]);
}

const all = acl ? rights(acl) : null;

function may(client, access, topic) {
  if (all === null) return true;
  const user = client === null ? "" : client.user;
  return all.some(([who, what, filter]) =>
    (who === null || who === user) && what.includes(access) && fits(filter.replace("%u", user), topic));
}

Aedes.createBroker({
  authenticate: (client, _name, _password, done) => {
    client.user = files ? client.conn.getPeerCertificate().subject.CN : "";
    done(null, true);
  },
  authorizePublish: (client, packet, done) =>
    done(may(client, "write", packet.topic) ? null : new Error("denied")),
  authorizeForward: (client, packet) => (may(client, "read", packet.topic) ? packet : null),
}).then((broker) => {
  const read = (name) => fs.readFileSync(files[name]);
  const options = files && {
    ca: read("ca"), cert: read("cert"), key: read("key"),
    requestCert: true, rejectUnauthorized: true, minVersion: "TLSv1.2", maxVersion: "TLSv1.2",
  };
  const server = files ? tls.createServer(options, broker.handle) : net.createServer(broker.handle);
  server.listen(Number(port), "127.0.0.1", () => console.log("ready"));
});
