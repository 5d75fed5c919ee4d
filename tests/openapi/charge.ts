// A job in TypeScript: its client is generated from the service's description. Prints what it was answered.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type Mechanism = components["schemas"]["Mechanism"];

// The compiler tells mechanisms apart: each line below that is marked would not be taken by the service.
const steps: Mechanism = {
  kind: "poisson_subsampled",
  sampling_rate: 0.01,
  base: { kind: "gaussian", noise_multiplier: 1.1 },
};
// @ts-expect-error a Gaussian has no epsilon
const wrongField: Mechanism = { kind: "gaussian", epsilon: 1 };
// @ts-expect-error nothing says what it is
const noKind: Mechanism = { noise_multiplier: 1.1 };
// @ts-expect-error there is no such kind
const wrongKind: Mechanism = { kind: "gausian", noise_multiplier: 1.1 };
// @ts-expect-error the mechanism inside is told apart too
const wrongInside: Mechanism = { kind: "grouped", group_size: 2, base: { kind: "pure", rho: 1 } };
// @ts-expect-error how often is never left out
const noCount: components["schemas"]["OneCharge"] = { mechanism: steps };
// @ts-expect-error a zCDP budget is in rho
const wrongBudget: components["schemas"]["Budget"] = { name: "life", kind: "zcdp", epsilon: 1 };
void [wrongField, noKind, wrongKind, wrongInside, noCount, wrongBudget];

/** What an answer's kind of mechanism costs: narrowed by `kind`, as a `switch` does. */
function noise(mechanism: Mechanism): number {
  switch (mechanism.kind) {
    case "gaussian":
      return mechanism.noise_multiplier;
    case "poisson_subsampled":
      return noise(mechanism.base);
    default:
      return 0;
  }
}

const [url, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

const opened = await client.POST("/v1/datasets", {
  body: {
    name: "typed",
    unit: "person",
    adjacency: "add_remove",
    delta: 1e-6,
    budgets: [{ name: "life", kind: "zcdp", rho: 1 }],
  },
});

// @ts-expect-error without an idempotency key nothing is charged
const keyless = () => client.POST("/v1/datasets/{dataset}/charges", { params: { path: { dataset: "typed" } } });
// @ts-expect-error which kind of scope is to be said
const kindless = () => client.GET("/v1/datasets/{dataset}/scopes", { params: { path: { dataset: "typed" } } });
void [keyless, kindless];

async function charge(name: string, body: components["schemas"]["OneCharge"] | components["schemas"]["ManyCharges"]) {
  return await client.POST("/v1/datasets/{dataset}/charges", {
    params: { path: { dataset: "typed" }, header: { "Idempotency-Key": name } },
    body,
  });
}

const pairs: Mechanism = { kind: "grouped", group_size: 2, base: { kind: "gaussian", noise_multiplier: 10 } };
const list = { charges: [{ mechanism: pairs, count: 3 }, { mechanism: { kind: "pure", epsilon: 0.1 } as const, count: 1 }] };
const first = await charge("one", { mechanism: { kind: "gaussian", noise_multiplier: 1 }, count: 1 });
const again = await charge("one", { mechanism: { kind: "gaussian", noise_multiplier: 1 }, count: 1 });
const many = await charge("many", list);
const refused = await charge("too-much", { mechanism: { kind: "gaussian", noise_multiplier: 1 }, count: 2 });
const checked = await client.POST("/v1/datasets/{dataset}/checks", { params: { path: { dataset: "typed" } }, body: list });
const scopes = await client.GET("/v1/datasets/{dataset}/scopes", {
  params: { path: { dataset: "typed" }, query: { kind: "principal" } },
});
const read = await client.GET("/v1/datasets/{dataset}/odometer", { params: { path: { dataset: "typed" } } });

console.log(
  JSON.stringify({
    opened: opened.response.status,
    noise: noise(steps),
    first: [first.response.status, first.data?.replayed, first.data?.sequence],
    again: [again.response.status, again.data?.replayed, again.data?.sequence],
    many: [many.response.status, many.data?.charges.length],
    refused: [refused.response.status, refused.error?.type],
    checked: [checked.response.status, checked.data?.fits],
    scopes: [scopes.response.status, scopes.data?.items.length],
    read: [read.response.status, read.data?.sequence],
  }),
);
