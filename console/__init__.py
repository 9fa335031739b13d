"""The console: web pages that show a cluster, for people who would rather look than type.

It is an ordinary client: it asks brokers through `clients.admin` and `clients.consumer` only, so it shows a
cluster of Apache Kafka too. It imports no broker and no coordinator.

    main.py         the command
    serving.py      binds the address and serves
    app.py          the routes
    asking/         what is asked of brokers, and when: values come back, no page is known here
    guarding/       who may see a page and who may change something: hosts, origins, visitors, logins
    pages/          one file for each subject: from values to a template
    templates/      the pages, in HTML
    static/         one style sheet and one script

Questions block, so they run in worker threads (`asking/work.py`). What all pages share is asked for once
and kept (`asking/watch.py`), however many browsers look. docs/console.md explains it to its users.
"""
