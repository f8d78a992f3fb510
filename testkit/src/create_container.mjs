// Creates a container of Azurite: node create_container.mjs ENDPOINT ACCOUNT KEY CONTAINER
//
// The request is signed by Shared Key, with the account twice in the resource, as it is in the path.
import { createHmac } from "node:crypto";

const [endpoint, account, key, container] = process.argv.slice(2);
const date = new Date().toUTCString();
const version = "2021-08-06";
const headers = `x-ms-date:${date}\nx-ms-version:${version}`;
const resource = `/${account}/${account}/${container}\nrestype:container`;
const text = `PUT${"\n".repeat(12)}${headers}\n${resource}`;
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
const response = await fetch(`${endpoint}/${container}?restype=container`, {
  method: "PUT",
  headers: {
    "x-ms-date": date,
    "x-ms-version": version,
    Authorization: `SharedKey ${account}:${signature}`,
  },
});
if (response.status !== 201) {
  console.error(response.status, await response.text());
  process.exit(1);
}
