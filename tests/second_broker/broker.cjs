// aedes on loopback, all in memory; the port is the first word. Says "ready" when it listens.
const net = require("net");
const { Aedes } = require("aedes");

Aedes.createBroker().then((broker) => {
  const server = net.createServer(broker.handle);
  server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
});
