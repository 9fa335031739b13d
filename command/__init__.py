"""The program `holdfast`: one command for servers, tools and jobs, found by name and imported when used.

The tools themselves are in `clients/tools`, `broker/tools`, `coordinator/tools` and `pipeline/jobs`.
"""
